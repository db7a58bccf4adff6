"""A UDF over iterators is called once per slot, and gets the batches of all chunks."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from spark_bull.spark.process.udf_iterator import UdfIterator


def values(outputs: list[Any]) -> list[int]:
    return [int(value) for output in outputs for value in output]


def series(*numbers: int) -> pd.Series[int]:
    return pd.Series(list(numbers))


class Counting:
    """A UDF that counts how often it is set up."""

    def __init__(self) -> None:
        self.setups = 0

    def __call__(self, batches: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
        self.setups += 1
        for batch in batches:
            if -1 in set(batch):
                raise ValueError("bad row")
            yield batch * 10


def test_the_set_up_of_a_udf_runs_once_for_all_chunks() -> None:
    function = Counting()
    udf = UdfIterator(function)
    assert [values(udf(series(n, n + 1), 2)) for n in range(3)] == [[0, 10], [10, 20], [20, 30]]
    assert function.setups == 1


def test_a_udf_is_set_up_again_after_an_exception() -> None:
    function = Counting()
    udf = UdfIterator(function)
    udf(series(1), 1)
    with pytest.raises(ValueError, match="bad row"):
        udf(series(-1), 1)
    assert values(udf(series(2), 1)) == [20]
    assert function.setups == 2


def test_a_udf_may_yield_a_batch_in_parts() -> None:
    def by_row(batches: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
        for batch in batches:
            for number in batch:
                yield series(number)

    udf = UdfIterator(by_row)
    assert values(udf(series(1, 2, 3), 3)) == [1, 2, 3]
    assert values(udf(series(4), 1)) == [4]


def test_a_udf_that_reads_all_batches_first_gets_those_of_its_chunk() -> None:
    def in_one(batches: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
        yield pd.concat(list(batches))

    udf = UdfIterator(in_one)
    assert values(udf(series(1, 2), 2)) == [1, 2]
    assert values(udf(series(3), 1)) == [3]


def test_outputs_are_never_taken_for_those_of_a_later_batch() -> None:
    def twice(batches: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
        for batch in batches:
            yield batch
            yield batch

    udf = UdfIterator(twice)
    assert values(udf(series(1), 1)) == [1]
    with pytest.raises(ValueError, match="it yielded more"):
        udf(series(2), 1)


def test_a_udf_that_yields_too_little_ends_its_call() -> None:
    def nothing(batches: Iterator[pd.Series[int]]) -> Iterator[pd.Series[int]]:
        yield from ()

    udf = UdfIterator(nothing)
    assert udf(series(1), 1) == []
    assert udf(series(2), 1) == []


def test_it_can_be_sent_to_executors() -> None:
    assert values(pickle.loads(pickle.dumps(UdfIterator(Counting())))(series(1), 1)) == [10]
