"""Bull 1 and 2, the published Bull Protocol."""

from __future__ import annotations

from typing import Any, ClassVar

from spark_bull.dialects.base import Dialect, StateKey, without_nulls
from spark_bull.dialects.bull import FALSE_IN_JAVASCRIPT
from spark_bull.dialects.events import EventChannels, bull1_channels, bull1_event
from spark_bull.dialects.priorities import QueuePriority
from spark_bull.errors import DialectError
from spark_bull.keys import QueueKeys
from spark_bull.model.jobs import QueueEvent


class Bull1(Dialect):
    """Finished states are SETs without order and times; jobs have no names and no priorities."""

    name = "bull-1"
    folder = "bull1"
    column = "bull-1"
    replaced_data = unwritten_results = FALSE_IN_JAVASCRIPT
    states: ClassVar = {
        "wait": StateKey("wait", "list"),
        "active": StateKey("active", "list"),
        "delayed": StateKey("delayed", "zset"),
        "paused": StateKey("paused", "list"),
        "completed": StateKey("completed", "set"),
        "failed": StateKey("failed", "set"),
    }

    def event_channels(self, keys: QueueKeys) -> EventChannels:
        return bull1_channels(keys)

    def event_of(self, keys: QueueKeys, channel: str, message: bytes) -> QueueEvent | None:
        return bull1_event(keys, channel, message)

    def check_priority(self, priority: object) -> int:
        checked = super().check_priority(priority)
        if isinstance(priority, QueuePriority):
            return 0
        if checked:
            raise DialectError(
                f"expected no `priority` (the dialect bull-1 has none), got: {priority!r}; leave it "
                "out, use a queue of Bull 3 or later, or that of the priority, as the PriorityQueue of Bull 1 does, "
                "for example mail:prio:high; writes of Spark do so for priorities by name"
            )
        return checked

    def stack_limit(self, given: int | None) -> int | None:
        return None

    def _opts(self, given: dict[str, Any]) -> dict[str, Any]:
        return without_nulls(given)
