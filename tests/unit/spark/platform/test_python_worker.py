"""Tests of what tasks do with the Python process in which they run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_bull.options.parse import parse_options
from spark_bull.options.table import SETTLE
from spark_bull.queue.core.walk import Slice
from spark_bull.spark.collect.stream import ResultReader, Results
from spark_bull.spark.dispatch.task import write_task
from spark_bull.spark.dispatch.write_plan import WritePlan
from spark_bull.spark.inspect.source import BatchReader, OpenSlice
from spark_bull.spark.platform import python_worker
from spark_bull.spark.platform.python_worker import begin_task
from spark_bull.spark.process.claim_stream import ClaimReader, Claims
from spark_bull.spark.process.settle.plan import SettlePlan
from spark_bull.spark.process.settle.task import settle_task


class Frozen(Exception):
    """Ends a task at the point at which it excludes objects."""


@pytest.mark.parametrize(
    "task",
    [
        lambda: next(BatchReader.__new__(BatchReader).read(OpenSlice(Slice()))),
        lambda: next(ResultReader.__new__(ResultReader).read(Results("q", "reader", 0, 1))),
        lambda: next(ClaimReader.__new__(ClaimReader).read(Claims("reader", 0, 1))),
        lambda: settle_task(SettlePlan(parse_options({}, SETTLE), columns={}, is_text=False), iter(())),
        lambda: write_task(cast(WritePlan, None), iter(())),
    ],
    ids=["inspect", "collect", "claim", "settle", "dispatch"],
)
def test_a_task_excludes_loaded_modules_from_the_collection_of_garbage(
    monkeypatch: pytest.MonkeyPatch, task: Callable[[], Any]
) -> None:
    def freeze() -> None:
        raise Frozen

    monkeypatch.setattr(python_worker, "gc", SimpleNamespace(freeze=freeze, get_objects=lambda: range(1_000_000)))
    with pytest.raises(Frozen):
        task()


def test_a_task_excludes_what_the_one_before_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[object] = []
    freezes: list[int] = []

    def freeze() -> None:
        freezes.append(len(collected))
        collected.clear()

    monkeypatch.setattr(python_worker, "gc", SimpleNamespace(freeze=freeze, get_objects=lambda: collected))
    for loaded in (60_000, 30_000, 10, 10, 10):
        collected.extend(range(loaded))
        begin_task()
    assert freezes == [60_000, 30_000]
