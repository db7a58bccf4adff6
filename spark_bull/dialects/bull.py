"""Bull 3 and 4."""

from __future__ import annotations

from typing import Any, ClassVar

from spark_bull.dialects.base import Dialect, StateKey, normal_backoff, without_nulls
from spark_bull.errors import OptionError, expected
from spark_bull.keys import SEGMENTS

FALSE_IN_JAVASCRIPT = frozenset({"null", "false", "0", '""', "-0", "0.0"})


#: Ids that would spell another key of the queue.
RESERVED_IDS = frozenset({*SEGMENTS.values(), *SEGMENTS})


def check_single_segment(job_id: str) -> None:
    """Bull takes any id; one that spells another key of the queue would destroy it."""
    if not job_id:
        raise expected("jobId", "a text that is not empty", job_id)
    if job_id in RESERVED_IDS or (":" in job_id and not job_id.startswith("repeat:")):
        raise OptionError(
            f"expected `jobId` not to be the name of another key of the queue and to hold no ':', got: {job_id!r}"
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
        check_single_segment(job_id)

    def _opts(self, given: dict[str, Any]) -> dict[str, Any]:
        from_bull: dict[str, Any] = {"attempts": 1, "delay": 0, "timestamp": "\x01"}
        return without_nulls(from_bull | given | normal_backoff(given))
