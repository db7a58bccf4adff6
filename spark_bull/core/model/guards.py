"""Guards: when the promoter pauses a queue, and for how long."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import inf
from typing import Any, Final, NamedTuple

from spark_bull.core.clock import milliseconds_of, utc
from spark_bull.core.errors import OptionError, encodable, expected

_FORM: Final = re.compile(r"\s*([^\s<>=!]+)\s*([<>=!]+)\s*(\S+)(?:\s+over\s+(\S+))?\s*")
_EXAMPLES: Final = "'failedRate > 0.2 over 1m' or 'failed >= 50 over 5m'"
#: What is measured -> its largest value.
_MEASURES: Final = {"failedRate": 1.0, "failed": inf}
#: See core/lua/lib/guard.lua.
_MARK: Final = re.compile(r"spark-bull guard until ([0-9]{1,16}): (.*)")
_OPERATORS: Final = (">", ">=")
_MIN_WINDOW_MS, _MAX_WINDOW_MS = 1_000, 86_400_000
#: How many looks a window has, and the minimum interval between them, ms.
_LOOKS, _MIN_INTERVAL_MS = 60, 200


class Condition(NamedTuple):
    """A parsed condition. measure: `failedRate` or `failed`. text: as it is shown."""

    measure: str
    operator: str
    threshold: float
    window_ms: int
    text: str

    @property
    def interval_ms(self) -> int:
        """Time between two looks at the queue, ms."""
        return max(_MIN_INTERVAL_MS, self.window_ms // _LOOKS)


@dataclass(frozen=True)
class Guard:
    """Pauses a queue while too many of its jobs fail, and resumes it after a time; for Promoters and workers.

        Guard("mail", pause_when="failedRate > 0.2 over 1m", resume_after_s=300)

    Parameters:
      queue: name or glob of the queues; each one is paused by itself, as is each shard of a sharded queue: the numbers
        hold for one shard.
      pause_when: `failedRate > x over time`, the share of failed ones among the jobs that have ended in this time, or
        `failed > n over time`, their number; also with `>=`. A job has failed when it has no attempts left. Times are
        such as 30s, 1m or 2h, from 1s to 1d.
      resume_after_s: time until the queue is resumed, s.
      min_jobs: how many jobs must have ended in the time of a `failedRate`.

    Raises:
      OptionError: for an invalid parameter.
    """

    queue: str
    pause_when: str
    resume_after_s: float = 300.0
    min_jobs: int = 10

    def __post_init__(self) -> None:
        if not isinstance(self.queue, str) or not self.queue:
            raise expected("queue", "the name or glob of the queues of a guard", self.queue)
        encodable("queue", self.queue)
        if not _is_number(self.resume_after_s) or not 0 < self.resume_after_s < inf:
            raise expected("resume_after_s", "a number of seconds > 0", self.resume_after_s)
        if not isinstance(self.min_jobs, int) or isinstance(self.min_jobs, bool) or self.min_jobs < 1:
            raise expected("min_jobs", "a positive integer", self.min_jobs)
        _ = self.condition

    @cached_property
    def condition(self) -> Condition:
        """The parsed `pause_when`."""
        return parse_condition(self.pause_when)

    @cached_property
    def id(self) -> str:
        """The same for equal guards of all processes: they share what they know of the queue."""
        rule = (self.condition.text, self.resume_after_s, self.min_jobs)
        return sha256(repr(rule).encode()).hexdigest()[:12]


def parse_condition(text: object) -> Condition:
    """Parses the condition of a guard. Raises OptionError, which names what was expected."""
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise expected("pause_when", f"a condition such as {_EXAMPLES}", text)
    measure, operator, number, window = match.groups()
    if measure not in _MEASURES:
        raise _wrong(f"one of {', '.join(_MEASURES)}", measure, text)
    if operator not in _OPERATORS:
        raise _wrong(f"{' or '.join(_OPERATORS)} after `{measure}`", operator, text)
    threshold = _number_of(number)
    if not 0 <= threshold <= _MEASURES[measure] or threshold == inf:
        what = "a number from 0 to 1" if measure == "failedRate" else "a number >= 0"
        raise _wrong(f"{what} after `{operator}`", number, text)
    window_ms = None if window is None else milliseconds_of(window)
    if window_ms is None or not _MIN_WINDOW_MS <= window_ms <= _MAX_WINDOW_MS:
        raise _wrong("`over` and a time from 1s to 1d, such as 30s or 5m, at the end", window, text)
    return Condition(measure, operator, threshold, window_ms, f"{measure} {operator} {number} over {window}")


def pause_reason(mark: bytes | None) -> str | None:
    """Why and until when a guard has paused a queue, by the sign of the pause; None for no pause, or another one."""
    match = _MARK.fullmatch((mark or b"").decode("utf-8", "replace"))
    return f"a guard until {utc(int(match[1]))}: {match[2]}" if match else None


def _wrong(what: str, got: str | None, text: object) -> OptionError:
    return OptionError(f"expected {what} in `pause_when`, got: {got or 'nothing'} (in {text!r})")


def _number_of(text: str) -> float:
    """A number; -1 for another text."""
    try:
        return float(text)
    except ValueError:
        return -1.0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
