"""The failed attempts that a slot or a settling task tells the driver, which logs the first, then a few a minute."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from spark_bull.core.clock import monotonic_s
from spark_bull.core.error_text import sendable
from spark_bull.core.model.outcomes import Failed, Outcomes, Retried

#: Maximum number of failures that are reported in a period, and its duration, s.
MOST: Final = 3
PERIOD_S: Final = 60.0
#: Maximum characters of a reason, and of a trace.
_MAX_REASON: Final = 500
_MAX_TRACE: Final = 3_000


class FewInPeriod:
    """Tells whether there were fewer than MOST in the last PERIOD_S."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MOST)

    def take(self) -> bool:
        """Counts one more; False: it is one too many."""
        now = monotonic_s()
        if len(self._times) == MOST and now - self._times[0] < PERIOD_S:
            return False
        self._times.append(now)
        return True


@dataclass(frozen=True)
class FailedAttempt:
    """A failed attempt of a job. number: how many of this slot or task had failed with it. trace: may be empty."""

    number: int
    queue: str
    job: str
    reason: str
    trace: str


class Failures:
    """The last failures of a slot or task that are to be logged."""

    def __init__(self) -> None:
        self._count = 0
        self._few = FewInPeriod()
        self._last: deque[FailedAttempt] = deque(maxlen=MOST)

    def add(self, queue: str, outcomes: Outcomes) -> None:
        """Adds the failed attempts among the outcomes of settled jobs."""
        failed: list[Failed | Retried] = [*outcomes.failed, *outcomes.retried]
        for one in failed:
            self._count += 1
            if self._few.take():
                reason, trace = sendable(one.reason, _MAX_REASON), sendable(_last_trace(one), _MAX_TRACE)
                self._last.append(FailedAttempt(self._count, queue, one.id, reason, trace))

    @property
    def last(self) -> list[FailedAttempt]:
        return list(self._last)

    def as_report(self) -> list[dict[str, Any]]:
        """The failures as they are in a slot's report."""
        return [asdict(one) for one in self._last]


def failures_in(report: dict[str, Any]) -> Iterator[FailedAttempt]:
    """Reads the failures from a slot's report, which has none if an older version wrote it."""
    for one in report.get("failures", ()):
        yield FailedAttempt(**one)


def _last_trace(failed: Failed | Retried) -> str:
    traces = json.loads(failed.stack) if failed.stack else []
    # An outcome without a trace has its reason there.
    return str(traces[-1]) if traces and traces[-1] != failed.reason else ""
