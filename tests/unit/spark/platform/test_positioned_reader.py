"""Readers of streams keep their position where PySpark passes none, as 4.0 and 4.1."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from spark_bull.errors import SparkBullError
from spark_bull.spark.platform.capabilities import CAPABILITIES
from spark_bull.spark.platform.positioned_reader import PositionedReader
from spark_bull.spark.platform.streams import LimitedReader, ReadLimit, ReadMaxRows

Offset = dict[str, Any]


class Numbers(LimitedReader):
    """Ten numbers are there after each offset. A batch has three of them by default."""

    has_limit = False

    def initialOffset(self) -> Offset:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(3)

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
