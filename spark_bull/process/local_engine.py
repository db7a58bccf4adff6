"""Runs the slots of a worker in threads or processes of this program."""

from __future__ import annotations

import pickle
import sys
from typing import Any, Final

from spark_bull.process.picklable import check_picklable_plan
from spark_bull.process.process_slot import ProcessSlot
from spark_bull.process.slot_engine import SlotEngine
from spark_bull.process.slot_group import SlotGroup
from spark_bull.process.thread_slot import ThreadSlot
from spark_bull.worker.slot.slot_plan import SlotPlan

_IN_MODULE: Final = "define it at the top level of a module, or use threads (processes=False)"


class LocalEngine(SlotEngine):
    """Each slot is a group, so that one that fails leaves the others alone."""

    def __init__(self, plan: SlotPlan, slots: int, *, processes: bool) -> None:
        super().__init__(plan)
        self._given = slots
        self._processes = processes

    def _start_slots(self) -> None:
        if self._processes:
            check_picklable_plan(_pickled, _IN_MODULE, self._plan)
        for _ in range(self._given):
            self._add_slots(1)

    def _new_group(self, plan: SlotPlan, numbers: range) -> SlotGroup:
        kind = ProcessSlot if self._processes else ThreadSlot
        return kind(plan, numbers, self._request_stop)


def _pickled(function: Any) -> bytes:
    """Pickles a function by its module, which a process must be able to import. Raises what prevents that."""
    pickled = pickle.dumps(function)
    if b"__main__" in pickled and not hasattr(sys.modules["__main__"], "__file__"):
        raise pickle.PicklingError("it is defined in a program without a file, such as a notebook")
    return pickled
