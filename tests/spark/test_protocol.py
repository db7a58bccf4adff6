"""A `protocol` that is not that of the queue: every verb refuses it and does not change the queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from redis import Redis

from spark_bull import BullQueue, Worker
from spark_bull.core.errors import DialectError
from spark_bull.spark.platform.requirements import start_query
from tests.spark.conftest import Bull
from tests.support.dump import dump
from tests.support.wait import PATIENCE_S

Verb = Callable[[Bull, dict[str, str], Path], object]


def write(bull: Bull, options: dict[str, str], _folder: Path) -> object:
    return bull.spark.range(2).write.format("bull").options(**options).mode("append").save()


def write_stream(bull: Bull, options: dict[str, str], folder: Path) -> object:
    rows = bull.spark.readStream.format("rate").load().select("value")
    writer = rows.writeStream.format("bull").options(**options).option("checkpointLocation", str(folder))
    return start_query(writer.trigger(availableNow=True).start).awaitTermination(PATIENCE_S)


def read(bull: Bull, options: dict[str, str], _folder: Path) -> object:
    return bull.spark.read.format("bull").options(**options).load().collect()


def read_stream(bull: Bull, options: dict[str, str], folder: Path) -> object:
    jobs = bull.spark.readStream.format("bull").options(**options).load()
    writer = jobs.writeStream.format("noop").option("checkpointLocation", str(folder))
    return start_query(writer.trigger(availableNow=True).start).awaitTermination(PATIENCE_S)


def settle(bull: Bull, options: dict[str, str], folder: Path) -> object:
    outcomes = bull.spark.sql("SELECT '1' AS id, 'token' AS token, 1 AS returnvalue")
    return outcomes.write.format("bull").options(**options, mode="settle").mode("append").save()


def work(bull: Bull, options: dict[str, str], _folder: Path) -> object:
    return Worker(bull.spark, processor=print, slots=1, progress=False, **options)


VERBS: dict[str, Verb] = {
    "write": write,
    "write at least once": lambda bull, options, folder: write(bull, options | {"delivery": "at-least-once"}, folder),
    "write a stream": write_stream,
    "read": read,
    "read counts": lambda bull, options, folder: read(bull, options | {"view": "counts"}, folder),
    "collect": read_stream,
    "claim": lambda bull, options, folder: read_stream(bull, options | {"mode": "claim"}, folder),
    "settle": settle,
    "work": work,
}


def test_a_wrong_protocol_is_refused(bull: Bull, queue: BullQueue, client: Redis, tmp_path: Path) -> None:
    queue.add({"n": 1})
    before = dump(client, bull.options["prefix"], "q")
    refused = (DialectError, AnalysisException, StreamingQueryException, PySparkException)
    for name, verb in VERBS.items():
        with pytest.raises(refused, match="expected queue q to speak bull-1"):
            verb(bull, {**bull.options, "queue": "q", "protocol": "bull-1"}, tmp_path / name)
        assert dump(client, bull.options["prefix"], "q") == before, name
