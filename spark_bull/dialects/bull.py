"""Bull 3 and 4."""

from __future__ import annotations

from typing import Any, ClassVar

from spark_bull.dialects.base import Dialect, StateKey, check_spells_no_other_key, normal_backoff, without_nulls

FALSE_IN_JAVASCRIPT = frozenset({"null", "false", "0", '""', "-0", "0.0"})


class Bull(Dialect):
    """Prioritised jobs stand inside `wait`, events are pub/sub messages."""

    name = "bull"
    folder = "bull"
    replaced_data = FALSE_IN_JAVASCRIPT
    no_worker_options: ClassVar = frozenset({"name"})
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
