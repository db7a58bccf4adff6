"""Memory over the run: samples, and how it changes with the time of the run and the age of a process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

#: A process is measured from this age on, s: before, it imports and compiles.
GROWN_UP_S = 60.0
#: The part of the run that is left out at its beginning, in which streams of events and caches fill up.
WARM_UP = 1 / 3
#: Fewer samples have no slope.
FEWEST = 20
#: Growth over the measured time, as a part of the mean, up to which memory counts as flat.
FLAT = 0.1
MB = 1 << 20


class Size(NamedTuple):
    """A sample. at: s since the beginning. age: of the process, s; 0: of something that has none."""

    at: float
    size: float
    age: float = 0.0


class Slope(NamedTuple):
    """By least squares. mean: MB. per_hour, error: change over the run and its standard error, MB per hour.

    hours: of the measured time. What changes with the age of a process that was started again is not in it.
    """

    mean: float
    per_hour: float
    error: float
    hours: float

    @property
    def grows(self) -> bool:
        """Whether it grows over the run by more than what is flat, and not by chance."""
        return (self.per_hour - 2 * self.error) * self.hours > FLAT * self.mean

    def __str__(self) -> str:
        return f"{self.mean:,.1f} | {self.per_hour:+,.1f} ± {self.error:,.1f}"


def slope(samples: Sequence[Size]) -> Slope | None:
    """Processes that are killed have several ages at each time, so both changes can be told apart."""
    if len(samples) < FEWEST:
        return None
    at, size, age = np.array(samples).T
    sizes, columns = size / MB, [np.ones(len(at)), at / 3600]
    # A process that was never started again has one age at each time.
    restarted = np.ptp(at - age) > GROWN_UP_S and age.any()
    given = np.column_stack([*columns, age / 3600] if restarted else columns)
    found, *_ = np.linalg.lstsq(given, sizes, rcond=None)
    rest = sizes - given @ found
    variance = rest @ rest / (len(sizes) - given.shape[1]) * np.linalg.pinv(given.T @ given)
    hours = float(np.ptp(at)) / 3600
    return Slope(float(sizes.mean()), float(found[1]), float(np.sqrt(variance[1, 1])), hours)


class Memory:
    """Samples by what they are of."""

    def __init__(self) -> None:
        self._samples: dict[str, list[Size]] = defaultdict(list)

    def add(self, sizes: Mapping[str, Size]) -> None:
        for name, size in sizes.items():
            self._samples[name].append(size)

    def slopes(self, until: float) -> dict[str, Slope | None]:
        """Of the time after the warm-up of a run that lasted until then, s."""
        return {
            name: slope([sample for sample in samples if WARM_UP * until <= sample.at <= until])
            for name, samples in self._samples.items()
        }
