"""Offsets that come back from a checkpoint: of another query, damaged, or of another reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from spark_bull import BullQueue, OptionError, SparkBullError
from spark_bull.spark.collect.events import event_reader
from spark_bull.spark.collect.stream import result_reader
from spark_bull.spark.platform.datasource import LimitedReader
from spark_bull.spark.schemas import CLAIM_SCHEMA, SCHEMAS
from spark_bull.spark.work.claim_stream import claim_reader

Make = Callable[[dict[str, str]], LimitedReader]

KINDS: dict[str, tuple[Make, list[Any]]] = {
    "collect": (
        lambda options: result_reader(options, SCHEMAS["jobs"]),
        [{"queues": {"q": "many"}, "reader": "r"}, {"queues": {"q": 1}}, {"queues": [], "reader": "r"}],
    ),
    "events": (
        lambda options: event_reader({**options, "view": "events"}, SCHEMAS["events"]),
        [{"queues": {"q": ["1-0"]}, "began": {}}, {"queues": {"q": ["x", 1]}, "began": {}}, {"queues": {}}],
    ),
    "claim": (
        lambda options: claim_reader(options, CLAIM_SCHEMA),
        [{"claimed": "x", "reader": "r"}, {"claimed": None, "reader": "r"}, {"claimed": 1}],
    ),
}
#: Those of the other kinds, and texts.
DAMAGED: list[Any] = [{}, [], "", {"queues": {}, "claimed": 0}]


@pytest.fixture
def options(open_queue: Callable[..., BullQueue], place: dict[str, str]) -> dict[str, str]:
    open_queue("q", "bullmq").add({})
    return {**place, "queue": "q", "protocol": "bullmq"}


@pytest.mark.parametrize("kind", KINDS)
def test_an_offset_that_cannot_be_read_is_refused_by_a_sentence(kind: str, options: dict[str, str]) -> None:
    make, damaged = KINDS[kind]
    reader = make(options)
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    end = json.loads(json.dumps(reader.latestOffset(start, limit)))
    assert reader.partitions(end, end) == []
    for offset in [*damaged, *DAMAGED]:
        for use in (
            lambda offset=offset: reader.latestOffset(offset, limit),
            lambda offset=offset: reader.partitions(offset, end),
            lambda offset=offset: reader.partitions(start, offset),
        ):
            with pytest.raises(SparkBullError, match="expected an offset in the checkpoint that this kind of query"):
                use()


@pytest.mark.parametrize("kind", ["collect", "claim"])
def test_another_reader_than_that_of_the_checkpoint_is_refused(kind: str, options: dict[str, str]) -> None:
    make, _ = KINDS[kind]
    first = make({**options, "readerId": "first"})
    start = first.initialOffset()
    end = first.latestOffset(start, first.getDefaultReadLimit())
    assert make({**options, "readerId": "first"}).partitions(start, end) is not None
    assert make(options).partitions(end, end) == []
    second = make({**options, "readerId": "second"})
    with pytest.raises(OptionError, match=r"expected `readerId` to be 'first', .* got: 'second'"):
        second.partitions(second.initialOffset(), end)
    with pytest.raises(OptionError, match="give another checkpoint"):
        second.latestOffset(end, second.getDefaultReadLimit())
