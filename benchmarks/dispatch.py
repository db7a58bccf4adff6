"""Dispatch, measured: Spark's sink and BullMQ's addBulk fill fresh servers in turns, in one run.

    make bench            or   .venv/bin/python -m benchmarks.dispatch --jobs 300000 --rounds 3

Prints medians and writes them to benchmarks/results/dispatch.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from redis import Redis

import spark_bull
from benchmarks.probes import memory_watched, pinged
from spark_bull import EmbeddedRedis

HERE = Path(__file__).parent
PEER = HERE / "peers" / "bullmq_add_bulk.js"
RESULTS = HERE / "results" / "dispatch.json"
QUEUE = "bench"
ADD_BULK_CHUNK = 1_000
#: Notes scripts that handle chunks; those of single jobs are far below, and staging is too.
SLOWLOG = {"slowlog-log-slower-than": "500", "slowlog-max-len": "20000"}
PARTITIONS = 4
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
#: What issue and README promise: at least this many times the better BullMQ figure.
TARGETS = {
    "at-least-once, string": 3.5,
    "exactly-once, string": 3.2,
    "exactly-once, struct": 2.5,
}
STRUCT = (
    "named_struct('id', id, 'carrier', 'UA', 'origin', 'EWR', 'note', repeat('x', 120), "
    "'delay', id % 60, 'ratio', id / 7) AS data"
)


@dataclass
class Measured:
    """One filling of a fresh server. Times in ms, but for `seconds`."""

    name: str
    jobs: int
    seconds: float
    ping_p50: float
    ping_p99: float
    ping_longest: float
    script_median: float | None = None

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds


Fill = Callable[[int, int], float]


def spark_fill(frame: DataFrame, delivery: str) -> Fill:
    def fill(port: int, _jobs: int) -> float:
        started = time.perf_counter()
        (
            frame.write.format("bull")
            .option("url", f"redis://127.0.0.1:{port}")
            .option("queue", QUEUE)
            .option("delivery", delivery)
            .mode("append")
            .save()
        )
        return time.perf_counter() - started

    return fill


def bullmq_fill(processes: int) -> Fill:
    """Start-up and connecting are left out: the peer's own clock starts when it is connected."""

    def fill(port: int, jobs: int) -> float:
        share = str(jobs // processes)
        peers = [
            subprocess.Popen(
                ["node", str(PEER), str(port), QUEUE, share, str(ADD_BULK_CHUNK)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(processes)
        ]
        return float(max(json.loads(peer.communicate()[0])["seconds"] for peer in peers))

    return fill


def measure(name: str, fill: Fill, jobs: int) -> Measured:
    """Fills a fresh server and checks what is in it."""
    with EmbeddedRedis(SLOWLOG) as server, Redis.from_url(server.url) as client:
        with pinged(server.port) as pings:
            seconds = fill(server.port, jobs)
        check(client, jobs)
        script_median = median_script_ms(client)
    return Measured(name, jobs, seconds, pings.p50, pings.p99, pings.longest, script_median)


def check(client: Redis, jobs: int) -> None:
    """All jobs wait, each once, each with its hash, and the marker and events are those of BullMQ."""
    ids = [job_id.decode() for job_id in client.lrange(f"bull:{QUEUE}:wait", 0, -1)]
    assert len(ids) == len(set(ids)) == jobs, f"expected {jobs} jobs in wait, got {len(ids)}"
    sample = ids[:: max(1, jobs // 1000)]
    hashes = [client.hgetall(f"bull:{QUEUE}:{job_id}") for job_id in sample]
    assert all({b"name", b"data", b"opts", b"timestamp", b"delay", b"priority"} <= set(fields) for fields in hashes)
    assert all(json.loads(fields[b"data"])["carrier"] == "UA" for fields in hashes)
    assert client.zscore(f"bull:{QUEUE}:marker", "0") == 0
    assert 10_000 <= client.xlen(f"bull:{QUEUE}:events") < 12_000 or jobs < 10_000


def median_script_ms(client: Redis) -> float | None:
    """How long a script with jobs in it takes, by Redis' own log."""
    entries = client.slowlog_get(20_000)
    times = [entry["duration"] / 1000 for entry in entries if entry["command"].startswith(b"EVALSHA")]
    return statistics.median(times) if times else None


def medians(results: list[Measured]) -> dict[str, Measured]:
    names = dict.fromkeys(result.name for result in results)
    return {name: _median([result for result in results if result.name == name]) for name in names}


def _median(runs: list[Measured]) -> Measured:
    def middle(of: Callable[[Measured], float]) -> float:
        return statistics.median(of(run) for run in runs)

    scripts = [run.script_median for run in runs if run.script_median is not None]
    return Measured(
        runs[0].name,
        runs[0].jobs,
        middle(lambda run: run.seconds),
        middle(lambda run: run.ping_p50),
        middle(lambda run: run.ping_p99),
        middle(lambda run: run.ping_longest),
        statistics.median(scripts) if scripts else None,
    )


def show(found: dict[str, Measured]) -> float:
    """Prints the table; returns the better BullMQ rate."""
    best = max(result.rate for name, result in found.items() if name.startswith("BullMQ"))
    print(f"\n{'':30} {'jobs/s':>9} {'x BullMQ':>9} {'PING p50':>9} {'p99':>7} {'max':>7} {'script':>7}  (ms)")
    for name, r in found.items():
        script = f"{r.script_median:7.2f}" if r.script_median and not name.startswith("BullMQ") else " " * 7
        target = f"   wanted: {TARGETS[name]}" if name in TARGETS else ""
        print(
            f"{name:30} {r.rate:9,.0f} {r.rate / best:9.2f} {r.ping_p50:9.2f} {r.ping_p99:7.2f} "
            f"{r.ping_longest:7.2f} {script}{target}"
        )
    return best


def growth(spark: SparkSession, small: int, large: int) -> dict[str, object]:
    """Cost per job and memory, with few and with many jobs; the input is computed, not cached."""
    found: dict[str, object] = {}
    rounds: dict[int, list[float]] = {small: [], large: []}
    for _ in range(3):
        for jobs in (small, large):
            frame = spark.range(jobs, numPartitions=PARTITIONS).selectExpr(STRUCT).selectExpr("to_json(data) AS data")
            with EmbeddedRedis() as server, memory_watched(os.getpid()) as memory:
                seconds = spark_fill(frame, "exactly-once")(server.port, jobs)
            rounds[jobs].append(seconds)
            found[f"{jobs} jobs"] = {"jvm_mib": round(memory.jvm), "python_mib": round(memory.python)}
    cost = {jobs: statistics.median(times) / jobs * 1e6 for jobs, times in rounds.items()}
    found["us_per_job"] = {str(jobs): round(each, 2) for jobs, each in cost.items()}
    for name, value in found.items():
        print(f"{name}: {value}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-growth", action="store_true", help="leave out 100,000 against 1,000,000 jobs")
    args = parser.parse_args()

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("dispatch").config(map=QUIET).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark_bull.register(spark)
    struct = spark.range(args.jobs, numPartitions=PARTITIONS).selectExpr(STRUCT).cache()
    string = struct.selectExpr("to_json(data) AS data").cache()
    struct.count(), string.count()
    fills: dict[str, Fill] = {
        "BullMQ addBulk, 1 process": bullmq_fill(1),
        "BullMQ addBulk, 2 processes": bullmq_fill(2),
        "exactly-once, string": spark_fill(string, "exactly-once"),
        "exactly-once, struct": spark_fill(struct, "exactly-once"),
        "at-least-once, string": spark_fill(string, "at-least-once"),
        "at-least-once, struct": spark_fill(struct, "at-least-once"),
    }
    measure("warm-up", fills["exactly-once, string"], args.jobs)
    results = []
    for round_number in range(args.rounds):
        for name, fill in fills.items():
            result = measure(name, fill, args.jobs)
            results.append(result)
            print(f"round {round_number + 1}: {name:30} {result.rate:9,.0f} jobs/s", flush=True)
    found = medians(results)
    best = show(found)
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "jobs": args.jobs,
        "rounds": args.rounds,
        "medians": {name: asdict(r) | {"rate": r.rate, "ratio": r.rate / best} for name, r in found.items()},
        "growth": {} if args.no_growth else growth(spark, 100_000, 1_000_000),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
