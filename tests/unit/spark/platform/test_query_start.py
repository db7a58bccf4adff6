"""Queries that start late, and readers of streams without a position."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from spark_bull.core.errors import SparkBullError
from spark_bull.spark.platform.capabilities import CAPABILITIES
from spark_bull.spark.platform.datasource import LimitedReader, ReadLimit
from spark_bull.spark.platform.positioned_reader import PositionedReader
from spark_bull.spark.platform.requirements import LATE, MAX_ATTEMPTS, UNANSWERED, start_query

INITIALIZING = {"message": "Initializing sources"}
#: A query shows this for a moment before it counts as ended.
STOPPED = {"message": "Stopped"}


@dataclass
class Query:
    """The attributes of a query that `start_query` reads: it shows `states` in turn, and ends with `error`."""

    error: str | None = None
    states: list[dict[str, Any]] = field(default_factory=lambda: [INITIALIZING, INITIALIZING, {"message": "Waiting"}])
    name: str = "q"

    @property
    def isActive(self) -> bool:
        return self.error is None or len(self.states) > 1

    @property
    def status(self) -> dict[str, Any]:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def exception(self) -> str | None:
        return self.error


def test_a_query_whose_source_connected_too_late_is_restarted() -> None:
    queries: list[Any] = [Query(f"[UNKNOWN] {LATE}."), Query(f"{LATE}.", [INITIALIZING, *[STOPPED] * 3])]
    queries += [Query(f"[{UNANSWERED}] timed out"), Query()]
    left = iter(queries)
    assert start_query(lambda: next(left)) is queries[-1]
    assert queries[-1].status == {"message": "Waiting"}


@pytest.mark.parametrize(("error", "starts"), [("no such column", 1), (LATE, MAX_ATTEMPTS)])
def test_a_query_that_keeps_failing_is_returned(error: str, starts: int) -> None:
    started: list[Any] = []

    def start() -> Any:
        started.append(Query(error))
        return started[-1]

    assert start_query(start) is started[-1]
    assert len(started) == starts


Offset = dict[str, Any]


class Numbers(LimitedReader):
    """Ten numbers are there after each offset. A batch has three of them by default."""

    most, has_limit = 3, False

    def initialOffset(self) -> Offset:
        return {"n": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        raise AssertionError("not announced")

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        return {"n": start["n"] + (getattr(limit, "max_rows", None) or 10)}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition: InputPartition) -> Any:
        raise AssertionError("not called")


def batch(reader: PositionedReader, start: int) -> int:
    """Plans the next batch; returns its end."""
    end = reader.latestOffset()
    [part] = reader.partitions({"n": start}, end)
    assert part.value == (start, end["n"])
    return int(end["n"])


def test_batches_follow_each_other_and_all_but_the_first_have_the_default_limit() -> None:
    reader = PositionedReader(Numbers())
    assert reader.initialOffset() == {"n": 0}
    assert batch(reader, 0) == 10
    assert reader.latestOffset() == reader.latestOffset() == {"n": 13}, "asked twice for one batch"
    assert batch(reader, 10) == 13


def test_the_first_batch_has_a_limit_that_the_user_has_given() -> None:
    numbers = Numbers()
    numbers.has_limit = True
    assert batch(PositionedReader(numbers), 0) == 3


def test_a_restarted_query_goes_on_at_the_offset_of_its_checkpoint() -> None:
    reader = PositionedReader(Numbers())
    assert reader.partitions({"n": 7}, {"n": 7}) == []
    assert batch(reader, 7) == 17


def test_an_offset_of_the_checkpoint_that_comes_late_is_refused_with_the_version_that_needs_none() -> None:
    reader = PositionedReader(Numbers())
    reader.latestOffset()
    with pytest.raises(SparkBullError, match=f"or use PySpark {CAPABILITIES['available-now'].since} or newer"):
        reader.partitions({"n": 7}, {"n": 7})
