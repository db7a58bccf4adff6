"""Memory over the run: samples of processes and of Redis, and how it changes with the time of the run and their age."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from redis import Redis

#: A process is measured from this age on, s: before, it imports and compiles.
GROWN_UP_S = 60.0
#: A JVM: its compiled code and its buffers grow for that long.
JVM_GROWN_UP_S = 300.0
#: The part of the run that is left out at its beginning, in which streams of events and caches fill up.
WARM_UP = 1 / 3
#: Fewer samples, of each process, have no slope.
FEWEST = 20
#: Growth over the measured time, as a part of the mean, up to which memory counts as flat.
FLAT = 0.1
MB = 1 << 20


class Size(NamedTuple):
    """A sample. at: s since the beginning. age: of the process, s; 0: of something that has none.

    processes: how many are summed up.
    """

    at: float
    size: float
    age: float = 0.0
    processes: int = 1


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


class NoLine(NamedTuple):
    """No line fits. mean: MB. why: in words."""

    mean: float
    why: str

    @property
    def grows(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.mean:,.1f} | no line: {self.why}"


def slope(samples: Sequence[Size]) -> Slope | NoLine | None:
    """Processes that are killed have several ages at each time, so both changes can be told apart, if they live long
    enough. None: there are too few samples.
    """
    if len(samples) < FEWEST:
        return None
    at, size, age, processes = np.array(samples).T
    mean = float(size.mean()) / MB
    if np.ptp(processes):
        return NoLine(mean, f"{processes.min():.0f} to {processes.max():.0f} processes, which come and go")
    lives = _lives(at, age)
    if len(samples) < FEWEST * lives:
        return NoLine(mean, f"started again {lives - 1} times, and at most {age.max() / 60:.1f} minutes old")
    sizes, columns = size / MB, [np.ones(len(at)), at / 3600]
    given = np.column_stack([*columns, age / 3600] if lives > 1 else columns)
    found, *_ = np.linalg.lstsq(given, sizes, rcond=None)
    rest = sizes - given @ found
    variance = rest @ rest / (len(sizes) - given.shape[1]) * np.linalg.pinv(given.T @ given)
    hours = float(np.ptp(at)) / 3600
    return Slope(mean, float(found[1]), float(np.sqrt(variance[1, 1])), hours)


def _lives(at: NDArray[np.float64], age: NDArray[np.float64]) -> int:
    """How many processes, one after the other, the samples are of, which are in the order of their times."""
    # The one before was measured, so it had lived for GROWN_UP_S.
    return 1 + int(np.sum(np.diff(at - age) > GROWN_UP_S / 2)) if age.any() else 1


class Memory:
    """Samples by what they are of."""

    def __init__(self) -> None:
        self._samples: dict[str, list[Size]] = defaultdict(list)

    def add(self, sizes: Mapping[str, Size]) -> None:
        for name, size in sizes.items():
            self._samples[name].append(size)

    def slopes(self, until: float) -> dict[str, Slope | NoLine | None]:
        """Of the time after the warm-up of a run that lasted until then, s."""
        return {
            name: slope([sample for sample in samples if WARM_UP * until <= sample.at <= until])
            for name, samples in self._samples.items()
        }


class Process(NamedTuple):
    """age: s. size: resident memory, bytes."""

    pid: int
    session: int
    age: int
    size: int
    command: str


def processes() -> list[Process]:
    command = ["ps", "-eo", "pid=,sess=,etimes=,rss=,comm="]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split(None, 4) for line in lines]
    return [Process(int(pid), int(sess), int(age), int(rss) * 1024, name) for pid, sess, age, rss, name in rows]


STAY = "Redis: keys that stay"
EXPIRE = "Redis: keys that expire"
USED, RESIDENT = "Redis: used_memory", "Redis: resident"
#: Ends of keys that are not measured: streams of slow queues, which are not full before the end of the run, and times
#: of expiry, which stay until they come, also when the job has ended.
FILLING = (b":events", b":spark:expiry:times")


def used(client: Redis) -> dict[str, int]:
    info = client.info("memory")
    return {USED: info["used_memory"], RESIDENT: info["used_memory_rss"]}


def by_expiry(client: Redis) -> dict[str, int]:
    """Bytes of the keys of both kinds, without FILLING."""
    sizes = {STAY: 0, EXPIRE: 0}
    for name, size, ttl in _sizes(client):
        if not name.endswith(FILLING):
            sizes[EXPIRE if ttl >= 0 else STAY] += size
    return sizes


def kinds(client: Redis) -> dict[str, tuple[int, int]]:
    """Number and bytes of the private keys, by what they are for."""
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name, size, _ in _sizes(client):
        kind = name.partition(b":spark:")[2].partition(b":")[0].decode() or "jobs and states"
        found[kind] = (found[kind][0] + 1, found[kind][1] + size)
    return dict(found)


def _sizes(client: Redis) -> list[tuple[bytes, int, int]]:
    """Name, bytes and time to live of each key."""
    names = list(client.scan_iter(count=1000))
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.memory_usage(name)
        pipeline.ttl(name)
    replies = pipeline.execute()
    return [(name, size or 0, ttl) for name, size, ttl in zip(names, replies[::2], replies[1::2], strict=True)]
