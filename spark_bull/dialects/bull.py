"""Bull 3 and 4."""

from __future__ import annotations

from typing import Any, ClassVar

from spark_bull.dialects.base import Dialect, StateKey, normal_backoff, without_nulls
from spark_bull.errors import OptionError, expected
from spark_bull.keys import SEGMENTS

FALSE_IN_JAVASCRIPT = frozenset({"null", "false", "0", '""', "-0", "0.0"})


#: Names of keys that aren't jobs; first and last segments of further ones.
_RESERVED = frozenset(SEGMENTS.values())
_RESERVED_FIRST = frozenset({"spark", "de", "metrics"})
_RESERVED_LAST = frozenset({"lock", "logs"})


def check_spells_no_other_key(job_id: str) -> None:
    """Bull takes any id; one that spells another key of the queue would destroy it."""
    if not job_id:
        raise expected("jobId", "a text that is not empty", job_id)
    segments = job_id.split(":")
    if job_id in _RESERVED or segments[0] in _RESERVED_FIRST or (len(segments) > 1 and segments[-1] in _RESERVED_LAST):
        raise OptionError(
            f"expected `jobId` not to spell another key of the queue, got: {job_id!r}; put a word in front or use '-'"
        )


class Bull(Dialect):
    """Prioritised jobs stand inside `wait`, events are pub/sub messages."""

    name = "bull"
    folder = "bull"
    replaced_data = FALSE_IN_JAVASCRIPT
    states: ClassVar = {
        "wait": StateKey("wait", "list"),
        "active": StateKey("active", "list"),
        "delayed": StateKey("delayed", "zset"),
        "paused": StateKey("paused", "list"),
        "completed": StateKey("completed", "zset"),
        "failed": StateKey("failed", "zset"),
    }

    def check_job_id(self, job_id: str) -> None:
        check_spells_no_other_key(job_id)

    def _opts(self, given: dict[str, Any]) -> dict[str, Any]:
        from_bull: dict[str, Any] = {"attempts": 1, "delay": 0, "timestamp": "\x01"}
        return without_nulls(from_bull | given | normal_backoff(given))
