"""Runs the demo: dispatches flights as jobs, inspects them with SQL, processes them in Spark and Node, and collects the
results. Requires no running services.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import pandas_udf  # type: ignore[attr-defined]

from spark_bull.core.embedded import COMPACT_SETTING, EmbeddedRedis
from spark_bull.spark.programs.commands import Source, Table, results, start
from spark_bull.spark.programs.commands import dispatch as add_jobs
from spark_bull.spark.programs.demo.place import JOBS, QUEUE, Measured, Place, airports, announce, flights
from spark_bull.spark.programs.session import errors_in_one_line, session
from spark_bull.spark.work.worker import Worker


def dispatch(spark: SparkSession, table: Path, place: Place) -> Measured:
    """Adds the flights as jobs, with a progress bar."""
    handles = [queue.handle for queue in place.queues()]
    done = add_jobs(spark, Source(str(table), "parquet", {}, JOBS), QUEUE, handles, place.options | {"attempts": "3"})
    return Measured("dispatch", done.added, done.seconds, f"exactly once, {done.duplicates} duplicates")


def inspect(spark: SparkSession, place: Place) -> Measured:
    """Queries the queue with SQL."""
    announce(
        "3. The queue is a DataFrame: counts of its states",
        f"""spark.read.format("bull"){place.shown}.option("view", "counts").load()""",
    )
    queue = place.options
    counts = spark.read.format("bull").options(**queue, view="counts").load()
    counts.where("jobs > 0").show()
    jobs = counts.selectExpr("sum(jobs)").collect()[0][0]

    by_carrier = """
        SELECT name AS carrier, count(*) AS jobs, round(avg(get_json_object(data, '$.dep_delay')), 1) AS minutes_late
        FROM jobs GROUP BY name ORDER BY jobs DESC LIMIT 8
    """
    announce("4. SQL over the jobs and their payloads: jobs per carrier, and how late its flights were", by_carrier)
    spark.read.format("bull").options(**queue).schema("name STRING, data STRING").load().createOrReplaceTempView("jobs")
    began = time.monotonic()
    spark.sql(by_carrier).show()
    seconds = time.monotonic() - began

    by_hour = """
        SELECT date_trunc('hour', runAt) AS due, count(*) AS delayed FROM jobs GROUP BY due ORDER BY due
    """
    announce("5. Delayed jobs per hour in which they are due", by_hour)
    delayed = spark.read.format("bull").options(**queue, states="delayed").schema("runAt TIMESTAMP").load()
    delayed.createOrReplaceTempView("jobs")
    spark.sql(by_hour).show()
    return Measured("inspect", jobs, seconds, "SQL over the payloads of all jobs")


_NODE_WORKER: Final = Path(__file__).with_name("node_worker.js")


@contextmanager
def node_workers(place: Place, folder: Path, bullmq: Path) -> Iterator[bool]:
    """Runs a BullMQ worker in Node, or one for each shard, during the block; yields whether it can.

    bullmq: the folder of the Node package.
    """
    if shutil.which("node") is None or not bullmq.is_dir():
        yield False
        return
    places = folder / "airports.json"
    places.write_text(json.dumps(airports()))
    running = [
        subprocess.Popen(
            ["node", str(_NODE_WORKER), url, queue.name, str(places), str(bullmq.resolve())], stdin=subprocess.PIPE
        )
        for url, queue in zip(place.urls, place.queues(), strict=True)
    ]
    try:
        yield True
    finally:
        for worker in running:
            worker.communicate(timeout=30)


def spark_worker(spark: SparkSession, place: Place) -> Worker:
    """A worker that processes the jobs with a pandas UDF on the executors."""
    places = airports()

    @pandas_udf("km DOUBLE, score DOUBLE")  # type: ignore[untyped-decorator]
    def rate(origin: pd.Series, dest: pd.Series, dep_delay: pd.Series) -> pd.DataFrame:
        """Great-circle distance by the haversine formula (R. W. Sinnott, 1984), and a score of the delay."""
        unknown = (np.nan, np.nan)
        lat1, lon1 = np.radians(np.array([places.get(code, unknown) for code in origin])).T
        lat2, lon2 = np.radians(np.array([places.get(code, unknown) for code in dest])).T
        h = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
        km = 2 * 6371 * np.arcsin(np.sqrt(h))
        return pd.DataFrame({"km": km, "score": np.tanh(dep_delay / 60) * np.log1p(km)})

    schema = "origin STRING, dest STRING, dep_delay DOUBLE"
    return Worker(spark, QUEUE, rate, payload_schema=schema, worker_name="spark", progress=True, **place.arguments)


def wait_until_done(place: Place) -> None:
    """Waits until no job waits or is active."""
    while any((counts := queue.counts())["wait"] or counts["active"] for queue in place.queues()):
        time.sleep(0.2)


def completed(spark: SparkSession, place: Place) -> DataFrame:
    """The jobs that have completed."""
    columns = "processedBy STRING, returnvalue STRING, processedOn TIMESTAMP, finishedOn TIMESTAMP"
    return spark.read.format("bull").options(**place.options, states="completed").schema(columns).load()


def measured(jobs: DataFrame, what: str) -> Measured:
    """The completed jobs, and the time from the start of the first one to the end of the last one."""
    lasted = "CAST(max(finishedOn) AS DOUBLE) - CAST(min(processedOn) AS DOUBLE)"
    number, seconds = jobs.selectExpr("count(*)", lasted).collect()[0]
    return Measured("process", number, seconds, what)


def process(spark: SparkSession, place: Place, folder: Path, bullmq: Path) -> Measured:
    """Processes the jobs with a pandas UDF on the executors and with BullMQ in Node in parallel."""
    announce(
        "6. Executors process jobs with a pandas UDF, while a BullMQ worker in Node processes others",
        f"""Worker(spark, "{QUEUE}", rate, payload_schema="origin STRING, dest STRING, dep_delay DOUBLE").start()""",
    )
    with node_workers(place, folder, bullmq) as node, spark_worker(spark, place):
        wait_until_done(place)
    if not node:
        print("    (Node or its package bullmq is not installed: Spark processed all jobs)")
    by_worker = """
        SELECT processedBy, count(*) AS jobs, round(avg(get_json_object(returnvalue, '$.km'))) AS km,
               round(avg(get_json_object(returnvalue, '$.score')), 3) AS score
        FROM done GROUP BY processedBy ORDER BY processedBy
    """
    announce("7. Jobs by worker, and their average results", by_worker)
    done = completed(spark, place)
    done.createOrReplaceTempView("done")
    spark.sql(by_worker).show()
    return measured(done, "pandas UDF, beside Node" if node else "pandas UDF")


_NODE_ADD: Final = Path(__file__).with_name("node_add.js")
#: Both sides have the settings of Redis, as a server has them that nobody has set up for this project.
_SETTINGS: Final = {COMPACT_SETTING: "64"}
#: The jobs as JSON, for Node. delay: ms.
_AS_JSON: Final = f"""
    SELECT to_json(struct(name, data, jobId, unix_millis(runAt) - unix_millis(current_timestamp()) AS delay))
    FROM ({JOBS})
"""


def compare(spark: SparkSession, table: Path, bullmq: Path) -> list[Measured]:
    """Dispatches and processes the flights of a Parquet table on a server of each side, and prints the ratios.

    Spark includes the read of the table; Node has all jobs in memory, in one process. bullmq: the folder of the Node
    package; without it there is no comparison.
    """
    announce("10. The same flights, dispatched and processed by Spark alone, then by BullMQ in Node alone")
    if shutil.which("node") is None or not bullmq.is_dir():
        print("    (Node or its package bullmq is not installed)")
        return []
    ours = _by_spark(spark, table)
    node = _by_node(spark, table, bullmq)
    for own, other in zip(ours, node, strict=True):
        assert own.jobs == other.jobs, f"expected both to {own.verb} {own.jobs:,} jobs, got {other.jobs:,}"
        print(f"    {own.verb}: {own.rate:,.0f} jobs/s, {own.rate / other.rate:.1f} x Node's {other.rate:,.0f}")
    return [*ours, *node]


def _by_spark(spark: SparkSession, table: Path) -> list[Measured]:
    with _server() as place:
        added = dispatch(spark, table, place)
        with spark_worker(spark, place):
            wait_until_done(place)
        done = measured(completed(spark, place), "Spark alone, pandas UDF")
    return [Measured("dispatch", added.jobs, added.seconds, "Spark alone, exactly once"), done]


def _by_node(spark: SparkSession, table: Path, bullmq: Path) -> list[Measured]:
    folder = table.parent / "for Node"
    spark.read.parquet(str(table)).createOrReplaceTempView("input")
    spark.sql(_AS_JSON).write.text(str(folder))
    with _server() as place:
        command = ["node", str(_NODE_ADD), place.urls[0], QUEUE, str(folder), str(bullmq.resolve())]
        added = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        with node_workers(place, table.parent, bullmq):
            wait_until_done(place)
        done = measured(completed(spark, place), "Node alone, one process, concurrency 50")
    return [Measured("dispatch", added["jobs"], added["seconds"], "Node alone, addBulk, one process"), done]


@contextmanager
def _server() -> Iterator[Place]:
    with EmbeddedRedis(_SETTINGS) as server:
        yield Place([server.url])


#: A carrier with fewer flights has no mean score: single flights would decide it.
MIN_FLIGHTS: Final = 30


def draw(joined: pd.DataFrame) -> Figure:
    """Draws jobs by carrier and worker, and mean scores by carrier.

    joined: the columns carrier, worker, flights, and score (the mean of the flights).
    """
    flown = joined.pivot_table(index="carrier", columns="worker", values="flights", aggfunc="sum").fillna(0)
    total = flown.sum(axis="columns").sort_values(ascending=False)
    weighted = (joined["score"] * joined["flights"]).groupby(joined["carrier"]).sum()
    scores = (weighted / total)[total.index[total >= MIN_FLIGHTS]]

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    flown.loc[total.index].plot.bar(stacked=True, ax=left, rot=0)
    left.set(title="Jobs by carrier and worker", xlabel="carrier", ylabel="jobs (one per flight)")
    left.legend(title="worker")
    right.bar(list(scores.index), list(scores), width=0.5, color="tab:red")
    right.set(
        title="Mean score of delays",
        xlabel=f"carrier with at least {MIN_FLIGHTS} flights",
        ylabel="tanh(delay / 60 min) · ln(1 + distance / km)",
    )
    right.axhline(0, color="black", linewidth=0.8)
    return figure


def collect(spark: SparkSession, place: Place, table: Path, folder: Path, picture: Path) -> Measured:
    """Writes the results to a table, joins them with the flights, and draws a chart."""
    lake = str(folder / "results")
    announce(
        "8. Results are streamed to Parquet exactly once; `spark-bull collect` does the same",
        f"""spark.readStream.format("bull"){place.shown}.load().writeStream.format("parquet")…""",
    )
    query = start(results(spark, place.options), Table(lake))
    query.awaitTermination()
    batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
    rows = sum(batch["numInputRows"] for batch in batches)
    seconds = sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000

    by_carrier = """
        SELECT carrier, processedBy AS worker, count(*) AS flights, round(avg(result.km)) AS km,
               round(avg(result.score), 3) AS score
        FROM dispatched JOIN (SELECT id, processedBy, from_json(returnvalue, 'km DOUBLE, score DOUBLE') AS result
                              FROM results) ON id = jobId
        GROUP BY carrier, processedBy ORDER BY carrier, processedBy
    """
    announce("9. Joined with the flights by job id", by_carrier)
    spark.read.parquet(str(table)).createOrReplaceTempView("input")
    spark.sql(JOBS).selectExpr("jobId", "name AS carrier").createOrReplaceTempView("dispatched")
    spark.read.parquet(lake).createOrReplaceTempView("results")
    joined: pd.DataFrame = spark.sql(by_carrier).toPandas()
    print(joined.head(8).to_string(index=False))
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(joined).savefig(picture)
    assert joined["flights"].sum() == rows, "expected each result to belong to one flight"
    return Measured("collect", rows, seconds, "exactly once, into Parquet")


@dataclass(frozen=True)
class Demo:
    """What the demo uses.

    months: the flights of the first months of 2013. shards: number of servers that share the queue. bullmq: folder of
    the Node package. picture: path of the chart, as PNG. compares: whether Spark alone and Node alone do the same.
    """

    months: int
    shards: int
    bullmq: Path
    picture: Path
    compares: bool = False


def run(demo: Demo) -> None:
    """Runs the demo with its own servers and session."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spark-bull-demo-") as folder, ExitStack() as stack:
        place = Place([stack.enter_context(EmbeddedRedis()).url for _ in range(demo.shards)])
        announce("1. Start temporary Redis servers on free ports", f"EmbeddedRedis()  # {', '.join(place.urls)}")
        table = flights(Path(folder), demo.months)
        announce(
            f"2. Dispatch the flights from New York in the first {demo.months} months of 2013 as jobs; "
            "`spark-bull dispatch` does the same",
            f"""df.write.format("bull").option("url", …){place.shown}.mode("append").save()""",
        )
        with errors_in_one_line(), session("demo") as spark:
            measured = all_verbs(spark, place, table, demo)
            if demo.compares:
                measured += compare(spark, table, demo.bullmq)
    announce("Summary, without the start of Spark")
    for one in measured:
        print(f"    {one}")
    print(f"    picture   {demo.picture}")
    print(f"    demo      {time.monotonic() - began:.0f} s, with the start of Spark")


def all_verbs(spark: SparkSession, place: Place, table: Path, demo: Demo) -> list[Measured]:
    """Runs all verbs on a Parquet table of flights, beside which the results are stored."""
    return [
        dispatch(spark, table, place),
        inspect(spark, place),
        process(spark, place, table.parent, demo.bullmq),
        collect(spark, place, table, table.parent, demo.picture),
    ]
