"""Rows become jobs, jobs results, results a table, while drivers and workers are killed: each row has one result.

`make test` kills them in a part of the way each: test_recovery.py, test_working.py and test_collecting.py; the notebook
05_lakehouse has the whole way.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_bull import BullQueue
from tests.support.circle_driver import JOB_S, LOCK_MS, MAX_STALLED, QUEUE, Circle, CircleDriver
from tests.support.node import NodePeer
from tests.support.wait import wait_until

KILLS = 30
#: Files that are written before each start of a driver, and the rows of each.
FILES, ROWS = 20, 25
#: Each driver starts a JVM and two queries, s.
DRIVER_S = 600
#: Workers of Node rescue jobs soon. Their rule to delete jobs does not hold for those that have one of their own.
NODE = {
    "lockDuration": LOCK_MS,
    "stalledInterval": 500,
    "maxStalledCount": MAX_STALLED,
    "removeOnComplete": {"count": 1},
    "name": "node",
}
AVAILABLE = {"availableNow": True}


class Rows:
    """Files of numbered rows, whose jobs take some ms."""

    def __init__(self, folder: Path) -> None:
        self.count = 0
        self._folder = folder
        folder.mkdir()

    def add(self) -> None:
        for _ in range(FILES):
            numbers = list(range(self.count, self.count + ROWS))
            table = pa.table({"n": pa.array(numbers, pa.int32()), "behaviour": [f"sleep:{1000 * JOB_S:.0f}"] * ROWS})
            # Spark ignores files with a dot, until they have their name.
            hidden = self._folder / f".{self.count}"
            pq.write_table(table, hidden)
            hidden.rename(self._folder / f"{self.count}.parquet")
            self.count += ROWS


def newest_batch(log: Path) -> int:
    """The number of the last batch in one of Spark's logs, -1 if there is none."""
    return max((int(entry.stem) for entry in log.glob("[0-9]*")), default=-1)


class Batches:
    """What the checkpoints say of both queries."""

    def __init__(self, folder: Path) -> None:
        self._checkpoints = [folder / "checkpoints" / name for name in ("dispatch", "collect")]

    def committed(self) -> list[int]:
        return [newest_batch(checkpoint / "commits") for checkpoint in self._checkpoints]

    def under_way(self) -> int:
        """The number of queries with a batch that was started and is not committed."""
        started = [newest_batch(checkpoint / "offsets") for checkpoint in self._checkpoints]
        return sum(batch > done for batch, done in zip(started, self.committed(), strict=True))


def kill_all(driver: CircleDriver, node: NodePeer, batches: Batches, chance: Random) -> None:
    """Kills a worker of Node while it works, then the driver, with its worker, while both of its queries work."""
    since = batches.committed()

    def both_have_moved_on() -> bool:
        driver.check()
        return all(now > before for now, before in zip(batches.committed(), since, strict=True))

    node.wait_for_events("completed", chance.randrange(1, 10), timeout=DRIVER_S)
    node.kill()
    wait_until(both_have_moved_on, "both queries to move on", timeout=DRIVER_S)
    time.sleep(chance.uniform(0, 1.5))
    driver.kill()


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.interop
@pytest.mark.usefixtures("forked_python")
def test_each_row_has_one_result_in_the_table_after_kills(
    node: Callable[..., NodePeer], spark: SparkSession, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    chance, rows, batches, hit = Random(29), Rows(tmp_path / "rows"), Batches(tmp_path), 0
    options = {"url": redis_url, "prefix": prefix}
    with BullQueue(QUEUE, **options, protocol="bullmq") as queue:

        def start_node() -> NodePeer:
            peer = node("bullmq-6.7.0", prefix=prefix, alone=True)
            peer.call("process", queue=QUEUE, concurrency=2, opts=NODE)
            return peer

        for _ in range(KILLS):
            rows.add()
            peer = start_node()
            with CircleDriver(tmp_path / "log", folder=str(tmp_path), **options) as driver:
                kill_all(driver, peer, batches, chance)
            hit += batches.under_way()

        start_node()
        circle = Circle(spark, tmp_path, options)
        circle.dispatch(AVAILABLE).awaitTermination()
        wait_until(lambda: not any(queue.counts()[state] for state in ("wait", "active")), "all jobs to end")
        # The jobs of a batch are deleted before the next one.
        for _ in range(2):
            circle.collect(AVAILABLE).awaitTermination()
        left = queue.counts()

    assert hit, "the kills came between batches"
    table = spark.read.parquet(str(tmp_path / "results"))
    found = table.select(
        "id", "state", f.get_json_object("returnvalue", "$.echo.n").cast("int"), "processedBy"
    ).collect()
    assert Counter(row[:3] for row in found) == Counter((f"order-{n}", "completed", n) for n in range(rows.count))
    assert {row[3] for row in found} == {"spark", "node"}
    writes = spark.read.format("bull").options(**options, queue=QUEUE, view="writes").load()
    assert writes.agg(f.sum("added"), f.sum("duplicates")).collect() == [(rows.count, 0)]
    assert not any(left.values()), left
