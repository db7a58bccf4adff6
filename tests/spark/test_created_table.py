"""Writes for which Spark would create a table, which nothing could read, and writes that look like them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_bull import BullDataSource, BullQueue
from tests.spark.conftest import Bull
from tests.support.wait import wait_until

TABLE = "created"
REFUSED = r"expected a write without a table, .* call save\(\)"


def _save_as(mode: str) -> Callable[[DataFrame, dict[str, str]], None]:
    return lambda rows, given: rows.write.format("bull").options(**given).mode(mode).saveAsTable(TABLE)


#: Writes that create a table.
WAYS: dict[str, Callable[[DataFrame, dict[str, str]], None]] = {
    **{mode: _save_as(mode) for mode in ("append", "errorifexists", "ignore", "overwrite")},
    "create": lambda rows, given: rows.writeTo(TABLE).using("bull").options(**given).create(),
    "createOrReplace": lambda rows, given: rows.writeTo(TABLE).using("bull").options(**given).createOrReplace(),
}


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_write_that_creates_a_table_is_refused_before_a_job_is_added(
    bull: Bull, queue: BullQueue, delivery: str
) -> None:
    given = {**bull.options, "queue": "q", "protocol": "bullmq", "delivery": delivery, "confirmObliterate": "true"}
    for way, create in WAYS.items():
        with pytest.raises(PySparkException, match=REFUSED):
            create(bull.spark.range(3), given)
        assert not any(queue.counts().values()), way
        assert not bull.spark.catalog.tableExists(TABLE), way


def test_create_table_as_select_is_refused(bull: Bull, queue: BullQueue) -> None:
    given = {**bull.options, "queue": "q"}

    class Given(BullDataSource):
        """Has options, which Spark does not pass here; without them, SPARK_BULL_URL and a column `queue` do."""

        def __init__(self, options: dict[str, str]) -> None:
            super().__init__({**options, **given})

        @classmethod
        def name(cls) -> str:
            return "given"

    bull.spark.dataSource.register(Given)
    with pytest.raises(PySparkException, match=REFUSED):
        bull.spark.sql(f"CREATE TABLE {TABLE} USING given AS SELECT 1 AS n")
    assert not any(queue.counts().values())
    assert not bull.spark.catalog.tableExists(TABLE)


def test_writes_within_other_commands_are_not_refused(bull: Bull, queue: BullQueue) -> None:
    given = ", ".join(f"{name} '{value}'" for name, value in bull.given().items())
    bull.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW outbox (n BIGINT) USING bull OPTIONS ({given})")
    bull.spark.sql("INSERT INTO outbox SELECT 1L").collect()
    bull.spark.sql("EXECUTE IMMEDIATE 'INSERT INTO outbox SELECT 2L'")
    batches = bull.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1, numPartitions=1).load()
    query = batches.writeStream.foreachBatch(lambda batch, _: bull.write(batch.selectExpr("value AS n"))).start()
    try:
        wait_until(lambda: query.exception() or queue.counts()["wait"] >= 4, "jobs of two batches")
    finally:
        query.stop()
    assert not query.exception()
