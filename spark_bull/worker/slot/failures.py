"""The failed attempts that a slot reports to the driver, which logs them: the first ones, then a few a minute."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from spark_bull.clock import monotonic_s
from spark_bull.error_text import sendable
from spark_bull.model.outcomes import Failed, Outcomes, Retried

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
    """A failed attempt of a job. number: how many attempts of this slot had failed with it. trace: may be empty."""

    number: int
    queue: str
    job: str
    reason: str
    trace: str


class Failures:
    """The last failures of a slot that are to be logged."""

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
                reason, trace = sendable(one.reason, _MAX_REASON), sendable(_last_trace(one.stack), _MAX_TRACE)
                self._last.append(FailedAttempt(self._count, queue, one.id, reason, trace))

    def as_report(self) -> list[dict[str, Any]]:
        """The failures as they are in a slot's report."""
        return [asdict(one) for one in self._last]


def failures_in(report: dict[str, Any]) -> Iterator[FailedAttempt]:
    """Reads the failures from a slot's report, which has none if an older version wrote it."""
    for one in report.get("failures", ()):
        yield FailedAttempt(**one)


def _last_trace(stack: str) -> str:
    traces = json.loads(stack) if stack else []
    return str(traces[-1]) if traces else ""
