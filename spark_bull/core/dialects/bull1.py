"""Bull 1 and 2, the published Bull Protocol."""

from __future__ import annotations

from typing import Any, ClassVar

from spark_bull.core.dialects.base import Dialect, StateKey, without_nulls
from spark_bull.core.dialects.bull import FALSE_IN_JAVASCRIPT, Bull
from spark_bull.core.dialects.events import EventChannels, bull1_channels, bull1_event
from spark_bull.core.dialects.priorities import QueuePriority
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.jobs import QueueEvent


class Bull1(Dialect):
    """Finished states are SETs without order and times; jobs have no names and no priorities."""

    name = "bull-1"
    folder = "bull/bull1"
    column = "bull-1"
    replaced_data = unwritten_results = FALSE_IN_JAVASCRIPT
    states: ClassVar = {
        **Bull.states,
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
            self.require("priorities", f"`priority` {priority!r}")
        return checked

    def stack_limit(self, given: int | None) -> int | None:
        return None

    def _opts(self, given: dict[str, Any]) -> dict[str, Any]:
        return without_nulls(given)
