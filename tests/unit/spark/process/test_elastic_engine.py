"""Which slots of a worker end first."""

from __future__ import annotations

from typing import Any

from spark_bull.spark.process.elastic_engine import first_to_end


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
