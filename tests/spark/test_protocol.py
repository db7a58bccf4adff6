"""A `protocol` that the queue does not have: every verb refuses it and does not change the queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from redis import Redis

from spark_bull import BullQueue, Worker
from spark_bull.core.errors import DialectError
from tests.spark.conftest import Bull, Files, collected
from tests.support.dump import dump

VERBS: dict[str, Callable[[Bull, Files], object]] = {
    "write": lambda bull, _: bull.write(bull.spark.range(2)),
    "write at least once": lambda bull, _: bull.write(bull.spark.range(2), delivery="at-least-once"),
    "write a stream": lambda _, files: files.write(),
    "read": lambda bull, _: bull.read().collect(),
    "read counts": lambda bull, _: bull.read(view="counts").collect(),
    "collect": lambda bull, files: collected(bull.stream(), files.checkpoint.parent / "collect"),
    "claim": lambda bull, files: collected(bull.stream(mode="claim"), files.checkpoint.parent / "claim"),
    "settle": lambda bull, _: bull.write(
        bull.spark.sql("SELECT '1' AS id, 'token' AS token, 1 AS returnvalue"), mode="settle"
    ),
    "work": lambda bull, _: Worker(bull.spark, "q", print, slots=1, progress=False, **bull.options),
}


def test_a_wrong_protocol_is_refused(bull: Bull, queue: BullQueue, client: Redis, files: Files) -> None:
    files.put(1)
    queue.add({"n": 1})
    before = dump(client, bull.options["prefix"], "q")
    bull.options["protocol"] = "bull-1"
    for name, verb in VERBS.items():
        with pytest.raises((DialectError, PySparkException), match="expected queue q to speak bull-1"):
            verb(bull, files)
        assert dump(client, bull.options["prefix"], "q") == before, name
