"""Programs that are Spark drivers, for tests that kill them with their JVM and their Python processes; their query.

    python -m tests.support.drivers PROGRAM '{"url": "…", "prefix": "…", …}'

PROGRAM is the name of a function in PROGRAMS, which gets the session and the JSON as its arguments.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

import spark_bull
from spark_bull.spark.platform.requirements import is_late, start_query
from tests.support.wait import wait_until

ROOT: Final = Path(__file__).parents[2]


class DriverProcess:
    """A driver in a separate process: a module with arguments, the last one `plan` as JSON. `log`: for its output."""

    def __init__(self, log: Path, *program: str, **plan: Any) -> None:
        self._log = log
        command = [sys.executable, "-m", *program, json.dumps(plan)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, start_new_session=True, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of the session of all its processes."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def check(self) -> None:
        code = self._process.poll()
        assert code is None, f"the driver ended with {code}:\n{self.output()}"

    def kill(self) -> None:
        """Kills the driver, its JVM and their Python processes, and waits until they have ended."""
        wait_until(self._have_been_killed, "the driver's processes to end")
        self._process.wait()

    def __enter__(self) -> DriverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _have_been_killed(self) -> bool:
        """Whether none is left of its processes; kills them, and those that have started since the last call."""
        groups = self._groups()
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        return not groups

    def _groups(self) -> set[int]:
        """The running process groups of its session; Spark starts Python processes in a separate group."""
        command = ["ps", "-s", str(self._process.pid), "-o", "stat=,pgid="]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        processes = [line.split() for line in listed.splitlines()]
        return {int(group) for state, group in processes if not state.startswith("Z")}

    def output(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]


def driver(log: Path, program: str, **plan: Any) -> DriverProcess:
    return DriverProcess(log, __name__, program, **plan)


@contextmanager
def processing_query(
    spark: SparkSession,
    processor: Callable[[DataFrame], DataFrame],
    checkpoint: Path | str,
    options: Mapping[str, Any],
    *,
    queue: str = "q",
    payload_schema: str | None = None,
    settle: Mapping[str, Any] | None = None,
    **claim: Any,
) -> Iterator[StreamingQuery]:
    """Runs a query in the block that claims the jobs of a queue, and processes its batches.

    options: of both modes; settle, claim: further ones of each.
    """
    jobs = spark.readStream.format("bull").options(**options, **claim, queue=queue, mode="claim").load()

    def batches(batch: DataFrame, _: int) -> None:
        given = {**options, **(settle or {})}
        spark_bull.process_batch(batch, processor, queue=queue, payload_schema=payload_schema, options=given)

    writer = jobs.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint))
    query = start_query(writer.start)
    try:
        yield query
    finally:
        query.stop()


# follow: a query that processes claimed jobs, until it is killed. Each job of the queue `q` has one follow-up in the
# same queue, and one in the queue `next`; follow-ups have none themselves.


def _with_follow_ups(jobs: DataFrame) -> DataFrame:
    data = f.struct(f.col("data.n").alias("of"))
    own, other = (f.struct(data.alias("data"), queue.alias("queue")) for queue in (f.lit("q"), f.lit("next")))
    then = f.when(f.col("data.of").isNull(), f.array(own, other))
    return jobs.select("id", "token", f.lit(1).alias("returnvalue"), then.alias("then"))


def following_query(spark: SparkSession, checkpoint: str, **options: Any) -> AbstractContextManager[StreamingQuery]:
    claim: dict[str, Any] = {"payload_schema": "n LONG, of LONG", "lockMs": 3_000, "maxJobsPerTrigger": 20}
    return processing_query(spark, _with_follow_ups, checkpoint, options, **claim)


def follow(spark: SparkSession, **plan: Any) -> None:
    with following_query(spark, **plan) as query:
        query.awaitTermination()


# collect: the finished jobs of `queues`, an object with the options of each, until it ends or is killed. Each queue has
# a query of its own, with FOLDER/QUEUE/table and FOLDER/QUEUE/checkpoint.

_LOOK_S: Final = 0.2


def _collecting_query(
    spark: SparkSession, folder: Path, trigger: Mapping[str, Any], queue: str, options: Mapping[str, str]
) -> StreamingQuery:
    jobs = spark.readStream.format("bull").options(queue=queue, **options).load()
    writer = jobs.writeStream.format("parquet").trigger(**trigger)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return start_query(lambda: writer.start(str(folder / "table")))


def collect_all(spark: SparkSession, folder: str, trigger: Mapping[str, Any], queues: Mapping[str, Any]) -> None:
    """Starts the queries one after the other, and returns when all have ended by themselves."""

    def start(queue: str) -> StreamingQuery:
        return _collecting_query(spark, Path(folder) / queue, trigger, queue, queues[queue])

    running = {queue: start(queue) for queue in queues}
    while running:
        time.sleep(_LOOK_S)
        for queue, query in [*running.items()]:
            if query.isActive:
                continue
            if (error := query.exception()) is None:
                del running[queue]
            elif is_late(error):
                running[queue] = start(queue)
            else:
                raise error


# call: calls for `rows` numbers in two tasks. Their rows with errors and results go into `file`, as JSON.


def call_all(spark: SparkSession, file: str, rows: int, **options: Any) -> None:
    numbers = spark.range(rows).repartition(2)
    found = spark_bull.call(numbers, "q", **options).collect()
    Path(file).write_text(json.dumps([[row["id"], row["error"], row["result"]] for row in found]))


PROGRAMS: Final[Mapping[str, Callable[..., None]]] = {"follow": follow, "collect": collect_all, "call": call_all}


def main(program: str, plan: str) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark_bull.register(spark)
    PROGRAMS[program](spark, **json.loads(plan))


if __name__ == "__main__":
    main(*sys.argv[1:])
