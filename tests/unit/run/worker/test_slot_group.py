"""Slots that fail are started again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_bull.run.worker import slot_group
from spark_bull.run.worker.slot_group import MAX_FAILED_STARTS, SlotGroup


class Failing(SlotGroup):
    """Slots that fail, after which they have worked or not."""

    def __init__(self, *worked: bool) -> None:
        plan: Any = SimpleNamespace(worker="worker", queues=())
        super().__init__(plan, range(1), lambda: None)
        self._worked = iter(worked)

    def _run_slots(self) -> None:
        raise RuntimeError("broken")

    def _has_worked(self, error: Exception) -> bool:
        return next(self._worked)

    def interrupt(self) -> None: ...


def test_only_failures_one_after_the_other_end_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_group, "MIN_PAUSE_S", 0)
    failures = [False] * (MAX_FAILED_STARTS - 1)
    group = Failing(*failures, True, *failures, False)
    group.start()
    group.wait()
    assert group.restarts == 2 * MAX_FAILED_STARTS - 1
    assert "could not be started after 3 attempts, last error: RuntimeError: broken" in str(group.error)
