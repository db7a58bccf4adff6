"""Stops, pauses and resumes the slots of a worker."""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from typing import Final, Literal

from spark_bull.core.errors import PermissionDenied, SparkBullError
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_report import report_name
from spark_bull.run.slot.status import Slot, slots_of

log = logging.getLogger("spark_bull")

#: How long the slots can see a request to stop.
STOP_TTL_MS: Final = 86_400_000
#: After this time a paused worker goes on, should nobody resume it.
PAUSE_TTL_MS: Final = 400 * 86_400_000


class SlotControl:
    """Writes the control key of each queue of a worker, which its slots read whenever they claim."""

    def __init__(self, plan: SlotPlan) -> None:
        self._plan = plan

    def pause(self) -> None:
        """Lets the slots claim no more jobs, unless they are to stop. Raises ConnectionLost."""
        self._write("pause", PAUSE_TTL_MS, "NX")

    def resume(self) -> None:
        """Lets the slots claim jobs again, unless they are to stop. Raises ConnectionLost."""
        for queue in self._plan.queues:
            if queue.handle.connection.call("GET", queue.work_settings.control) == b"pause":
                queue.handle.connection.call("DEL", queue.work_settings.control)
        self.unblock()

    def withdraw_stop(self) -> None:
        """Lets slots that start from now on claim jobs. Raises ConnectionLost."""
        for queue in self._plan.queues:
            queue.handle.connection.call("DEL", queue.work_settings.control)

    def forget(self, reports: Sequence[Slot]) -> None:
        """Removes these reports of slots that have ended. Raises ConnectionLost."""
        if reports:
            names = [report_name(report["slot"], report["started"]) for report in reports]
            self._plan.handle.connection.call("HDEL", self._plan.handle.keys.slots(self._plan.worker), *names)

    def request(self, what: Literal["stop", "end"]) -> bool:
        """Lets the slots stop once they have finished their jobs, or return them. Returns whether Redis was reached."""
        try:
            self._write(what, STOP_TTL_MS)
        except SparkBullError as error:
            log.warning("worker %s: could not request its slots to %s: %s", self._plan.worker, what, error)
            return False
        return True

    def unblock(self, numbers: Container[int] | None = None) -> None:
        """Ends the waits of the slots. Without permission for CLIENT UNBLOCK their blocking commands end later.

        numbers: of which slots; None: of all of the worker.
        """
        connections = [queue.handle.connection for queue in self._plan.queues]
        try:
            reports = slots_of(self._plan.handle, self._plan.worker)
            for slot in reports if numbers is None else [one for one in reports if one["slot"] in numbers]:
                # Each wait is on the node of its queue. A slot that has not started reports none.
                for connection, client in zip(connections, slot["clients"], strict=False):
                    if client and slot["state"] != "stopped":
                        connection.call("CLIENT", "UNBLOCK", client)
        except SparkBullError as error:
            # A right that is not needed is not missed again whenever the slots are to stop.
            level = logging.INFO if isinstance(error, PermissionDenied) else logging.WARNING
            log.log(level, "worker %s: could not unblock its slots: %s", self._plan.worker, error)

    def _write(self, request: Literal["stop", "pause", "end"], ttl_ms: int, *condition: str) -> None:
        for queue in self._plan.queues:
            queue.handle.connection.call("SET", queue.work_settings.control, request, "PX", ttl_ms, *condition)
