"""Slots that do not reach Redis, and the slots that end first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_bull.core.clock import epoch_ms
from spark_bull.core.errors import WorkerFailed
from spark_bull.run.slot.status import WorkerStatus
from spark_bull.spark.platform.jvm import TaskState
from spark_bull.spark.work import spark_engine
from spark_bull.spark.work.elastic_engine import first_to_end
from spark_bull.spark.work.spark_engine import PATIENCE_S, SILENT_MS, ReachWatch

TRACE = """ExecutorLostFailure or PythonException: Traceback (most recent call last):
  File "task_slots.py", line 60, in _reach
redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.
spark_bull.core.errors.RedisUnavailable: expected Redis at redis://localhost, got none: refused (on worker1)
\tat org.apache.spark.api.python.BasePythonRunner"""


class Look:
    """Looks of a watch at a group of three slots, of which these have reported."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: list[TaskState] = []
        self.now_s = 5_000.0
        monkeypatch.setattr(spark_engine, "task_states", lambda _spark, _tag, _known: self.tasks)
        monkeypatch.setattr(spark_engine, "monotonic_s", lambda: self.now_s)
        spark: Any = None
        self.watch = ReachWatch(spark, "w")
        self.group: Any = SimpleNamespace(numbers=range(2, 5), tag="tag", has_started=lambda report: report["run"] == 1)

    def __call__(self, *reported: int, run: int = 1) -> dict[str, str]:
        self.watch.look([self.group], [{"slot": slot, "run": run} for slot in reported])
        return dict(self.watch.hosts)

    def wait(self) -> None:
        self.now_s += PATIENCE_S


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Look:
    return Look(monkeypatch)


def failed(partition: int, host: str, trace: str = TRACE) -> TaskState:
    return TaskState(partition, host, False, epoch_ms(), trace)


def running(partition: int, host: str, for_ms: int = 0) -> TaskState:
    return TaskState(partition, host, True, epoch_ms() - for_ms, "")


def test_a_slot_that_runs_and_does_not_report_is_a_fault_of_the_connection(look: Look) -> None:
    look.tasks = [running(0, "a", SILENT_MS + 1), running(1, "b")]
    assert list(look()) == ["a"]
    assert "has not reported" in look.watch.hosts["a"]
    # Spark may still fetch its packages there.
    for _ in range(2):
        look.tasks = [running(slot, "a", SILENT_MS + 1) for slot in range(3)]
        look()
        look.wait()


def test_the_worker_fails_when_no_slot_reaches_redis_for_some_time_but_the_driver_does(look: Look) -> None:
    look.tasks = [failed(0, "a"), running(0, "a"), failed(1, "b")]
    look()
    # The driver has lost Redis, too.
    look.watch.lose()
    look.wait()
    look()
    # Another slot may still report.
    look.tasks.append(running(2, "c"))
    look.wait()
    look()
    look.tasks.pop()
    look.wait()
    look()
    look.wait()
    # Slots have reported before they were started again.
    look(2, run=0)
    look()
    look.wait()
    with pytest.raises(WorkerFailed, match=r"no slot of worker w reaches Redis, .*: a: expected Redis .*; b: expected"):
        look()


def test_the_status_does_not_blame_cores_for_it() -> None:
    status = WorkerStatus("running", waiting_slots=2, tasks=4, unreached={"b": "refused", "a": "refused"})
    assert str(status).endswith("0 slots running, 2 waiting for Redis, which they do not reach from a, b")


def report(slot: int, executor: str, state: str = "idle") -> dict[str, Any]:
    return {"slot": slot, "executor": executor, "state": state}


def test_slots_without_a_core_and_without_a_job_end_first() -> None:
    reports = [report(0, "a", "busy"), report(1, "a"), report(2, "a", "busy"), report(3, "a", "starting")]
    assert first_to_end([0, 1, 2, 3, 4, 5], reports) == [5, 4, 3, 1, 2, 0]


def test_slots_end_on_one_executor_after_the_other_and_first_where_they_are_few() -> None:
    """So that executors become idle, which Spark can remove."""
    executors = {0: "a", 1: "b", 2: "c", 3: "a", 4: "b", 5: "a", 6: "c"}
    order = first_to_end(list(executors), [report(slot, executor) for slot, executor in executors.items()])
    assert [executors[slot] for slot in order] == ["b", "b", "c", "c", "a", "a", "a"]
