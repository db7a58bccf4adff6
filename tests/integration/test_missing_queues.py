"""Reads say what is missing or slow: a queue that does not exist or is paused, and a read of all states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_bull import BullQueue, NewJob
from spark_bull.spark.collect.stream import result_reader
from spark_bull.spark.inspect.source import batch_reader
from spark_bull.spark.schemas import SCHEMAS
from spark_bull.spark.work.claim_stream import claim_reader

Said = Callable[[], list[str]]


@pytest.fixture
def said(own_log: pytest.LogCaptureFixture) -> Said:
    return lambda: [record.getMessage() for record in own_log.records]


@pytest.fixture
def options(place: dict[str, Any]) -> dict[str, Any]:
    return {**place, "queue": "mail"}


@pytest.mark.parametrize("more", [{}, {"view": "counts"}])
def test_a_read_names_the_queues_that_do_not_exist(
    queue: BullQueue, options: dict[str, Any], said: Said, more: dict[str, str]
) -> None:
    queue.add({})
    batch_reader(options | more | {"queue": "mail,meil,m*"}, SCHEMAS[more.get("view", "jobs")])
    where = f"{queue.handle.connection.settings.where} with prefix={options['prefix']}"
    assert said() == [f"queue meil not found at Redis {where}: no jobs are read until it exists"]


def test_a_read_of_many_jobs_in_several_states_says_that_an_option_reads_less(
    queue: BullQueue, options: dict[str, Any], said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bull.spark.inspect.source.ADVISED_FROM", 5)
    queue.add_many([NewJob({})] * 5)

    def read(**more: str) -> list[str]:
        before = len(said())
        batch_reader(options | more, SCHEMAS["jobs"]).partitions()
        return said()[before:]

    assert read() == [], "expected no advice for jobs in one state"
    queue.add({}, delay=60_000)
    assert read() == [
        "queue mail: reading 6 jobs in all states (delayed: 1, wait: 5). `where state = …` is applied after the "
        "read: the option `states` reads only the jobs in some states, which is faster"
    ]
    assert read(states="wait,delayed") == read(jobIds="1") == []


@pytest.mark.parametrize("available_now", [False, True])
def test_a_collecting_query_says_once_that_its_queue_does_not_exist(
    options: dict[str, Any], said: Said, available_now: bool
) -> None:
    reader = result_reader(options, SCHEMAS["jobs"])
    if available_now:
        reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    for _ in range(3):
        start = reader.latestOffset(start, reader.getDefaultReadLimit())
    [line] = said()
    assert line.startswith("queue mail not found at Redis ")
    reader._collector(start["reader"]).close()


def test_a_query_says_once_that_it_claims_nothing_of_a_paused_queue(
    queue: BullQueue, options: dict[str, Any], said: Said
) -> None:
    queue.add({})
    queue.pause()
    reader = claim_reader(options)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    assert said() == [
        "queue mail is paused: the query ends without having claimed its jobs, unless the queue is resumed"
    ]
