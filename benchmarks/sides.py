"""The two sides of the dispatch benchmark: the Spark sink and BullMQ's addBulk, connected and warmed up."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import spark_bull
from benchmarks.probes import adopt_orphans

QUEUE = "bench"
ADD_BULK_CHUNK = 1_000
PARTITIONS = 4
PEERS = Path(__file__).parent / "peers"
ADD_BULK = PEERS / "bullmq_add_bulk.js"
ADD_FLOWS = PEERS / "bullmq_add_flows.js"
#: Children of a job in the flows, and flows per call of FlowProducer.addBulk.
CHILDREN = 4
ADD_FLOWS_CHUNK = 200
#: About 200 bytes of JSON per job, the same as the peer's.
STRUCT = (
    "named_struct('id', id, 'carrier', 'UA', 'origin', 'EWR', 'note', repeat('x', 120), "
    "'delay', id % 60, 'ratio', id / 7) AS data"
)

#: The wide jobs of the peer: a flight of 19 fields, about 400 bytes of JSON. A tenth of them is delayed by a day.
WIDE = (
    "named_struct('year', 2013, 'month', id % 12 + 1, 'day', id % 28 + 1, 'dep_time', id % 2400, "
    "'sched_dep_time', id % 2359, 'dep_delay', id % 60, 'arr_time', id * 3 % 2400, 'sched_arr_time', id * 3 % 2359, "
    "'arr_delay', id % 70, 'carrier', 'UA', 'flight', id % 6000, 'tailnum', concat('N', id % 4000), 'origin', 'EWR', "
    "'dest', 'IAH', 'air_time', id % 400, 'distance', id % 2500, 'hour', id % 24, 'minute', id % 60, "
    "'time_hour', '2013-01-01T10:00:00Z') AS data",
    "'UA' AS name",
    "concat('UA-0-', id) AS jobId",
    "IF(id % 10 = 0, 86400000, NULL) AS delay",
)

#: Fills the queue; returns the duration in s.
Run = Callable[[], float]
#: Prepares a side to add a number of jobs to the server on a port.
Side = Callable[[int, int], AbstractContextManager[Run]]


def new_session(**settings: str) -> SparkSession:
    """Starts Spark on two cores without console output; its processes stay descendants of this one."""
    adopt_orphans()
    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    session = builder.config(map={**quiet, **settings}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    spark_bull.register(session)
    return session


def structs(spark: SparkSession, jobs: int) -> DataFrame:
    return spark.range(jobs, numPartitions=PARTITIONS).selectExpr(STRUCT)


def strings(spark: SparkSession, jobs: int) -> DataFrame:
    return structs(spark, jobs).selectExpr("to_json(data) AS data")


def wide(spark: SparkSession, jobs: int) -> DataFrame:
    return spark.range(jobs, numPartitions=PARTITIONS).selectExpr(*WIDE)


def sink(frame: DataFrame, delivery: str, **options: str) -> Side:
    """The Spark side: a complete `save()`."""

    @contextmanager
    def ready(port: int, _jobs: int) -> Iterator[Run]:
        writer = frame.write.format("bull").mode("append").options(delivery=delivery, queue=QUEUE, **options)
        yield lambda: timed(writer.option("url", f"redis://127.0.0.1:{port}").save)

    return ready


def with_ids(frame: DataFrame, ids: int) -> DataFrame:
    """Gives the rows this number of deduplication ids, in turns."""
    return frame.withColumn("deduplication", expr(f"string(bigint(get_json_object(data, '$.id')) % {ids})"))


def with_children(frame: DataFrame) -> DataFrame:
    """Makes each CHILDREN + 1 rows of a frame one job with CHILDREN children, with the same payload."""
    children = f"array_repeat(struct('{QUEUE}-children' AS queue, data), {CHILDREN}) AS children"
    roots = frame.where(f"bigint(get_json_object(data, '$.id')) % {CHILDREN + 1} = 0")
    return roots.selectExpr("data", children)


def add_bulk(processes: int, kind: str = "plain", number: int = 0) -> Side:
    """The BullMQ side: several processes that start at the same time.

    kind: `plain`, `once` (number: of deduplication ids) or `wide`, whose ids have the number of the process.
    """
    return _node(ADD_BULK, processes, lambda process: [ADD_BULK_CHUNK, kind, process if kind == "wide" else number])


def add_flows(processes: int) -> Side:
    """The side of FlowProducer.addBulk."""
    return _node(ADD_FLOWS, processes, lambda _: [ADD_FLOWS_CHUNK, CHILDREN])


def _node(program: Path, processes: int, arguments: Callable[[int], Sequence[int | str]]) -> Side:
    """arguments: of a process, by its number."""

    @contextmanager
    def ready(port: int, jobs: int) -> Iterator[Run]:
        with ExitStack() as stack:
            peers = [
                stack.enter_context(_peer(program, port, share, arguments(process)))
                for process, share in enumerate(shares(jobs, processes))
            ]
            for peer in peers:
                _expect(peer, "ready")
            yield lambda: timed(lambda: _begin(peers))

    return ready


def shares(jobs: int, processes: int) -> list[int]:
    return [jobs * (i + 1) // processes - jobs * i // processes for i in range(processes)]


def _peer(program: Path, port: int, jobs: int, arguments: Sequence[int | str]) -> subprocess.Popen[str]:
    command = ["node", str(program), str(port), QUEUE, str(jobs), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _begin(peers: list[subprocess.Popen[str]]) -> None:
    for peer in peers:
        _pipe(peer.stdin).write("go\n")
        _pipe(peer.stdin).flush()
    for peer in peers:
        _expect(peer, "done")


def _expect(peer: subprocess.Popen[str], word: str) -> None:
    line = _pipe(peer.stdout).readline().strip()
    assert line == word, f"expected the Node peer to print {word!r}, got {line!r}"


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started
