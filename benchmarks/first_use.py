"""Benchmark of the first use: CPU time of the start of a program, and of the first write of a warm session of Spark.

    make bench            or   .venv/bin/python -m benchmarks.first_use --only start

The start is compared with `import redis` and its PING, the first write with a write to a data source that does
nothing. Prints medians, and which modules the processes import. Writes all runs to benchmarks/results/first_use.json.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import spark_bull
from benchmarks.probes import cpu_of
from benchmarks.report import Verdict, at_most, show_verdicts, write_results
from benchmarks.sides import QUEUE, new_session
from benchmarks.stock import stock_redis

PING, ADD, COUNTS = "import redis, PING", "BullQueue(...).add(...)", "spark-bull counts"
EMPTY, BULL = "empty", "bull"
#: Most CPU time, as a ratio to PING and to the empty source.
START: Final = 1.5
FIRST_WRITE: Final = 2.0
ROWS: Final = 10
#: What each process of a write imports: the module of PySpark that it runs, and ours.
STEPS: Final = {
    "create": ("pyspark.sql.worker.create_data_source", "spark_bull.spark.provider"),
    "plan": ("pyspark.sql.worker.write_into_data_source", "spark_bull.spark.dispatch.sink"),
    "task": ("pyspark.worker", "spark_bull.spark.dispatch.task"),
    "commit": ("pyspark.sql.worker.commit_data_source_write", "spark_bull.spark.dispatch.sink"),
}


def programs(url: str) -> dict[str, list[str]]:
    """The arguments of Python for each program."""
    return {
        PING: ["-c", f"from redis import Redis; Redis.from_url({url!r}).ping()"],
        ADD: ["-c", f"import spark_bull; spark_bull.BullQueue({QUEUE!r}, url={url!r}).add({{'n': 1}})"],
        COUNTS: ["-m", "spark_bull.ops.cli", "--url", url, "counts", QUEUE],
    }


def cpu_s(arguments: Sequence[str]) -> float:
    """The CPU time of a Python process, s."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=quiet)
    _, status, used = os.wait4(process, 0)
    assert status == 0, f"expected {arguments} to succeed, got the status {status}"
    return used.ru_utime + used.ru_stime


def start(rounds: int) -> tuple[dict[str, Any], list[Verdict]]:
    with stock_redis() as server:
        each = programs(server.url)
        cpu_s(each[ADD])  # `counts` needs a queue
        runs = [{name: cpu_s(arguments) for name, arguments in each.items()} for _ in range(rounds)]
    found = {name: median(run[name] for run in runs) for name in runs[0]}
    for name, seconds in found.items():
        print(f"{name:36}{seconds * 1000:8.0f} ms of CPU, {seconds / found[PING]:.2f} x")
    return {"runs": runs}, [
        at_most(f"CPU, {name} / PING", START, found[name] / found[PING], " x") for name in (ADD, COUNTS)
    ]


class EmptyWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class EmptySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return EMPTY

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return EmptyWriter()


def write_in_new_session(source: str, url: str) -> None:
    """Prints the wall time and the CPU times of the first write of a session that has run a query and Python tasks."""
    spark = new_session()
    spark.dataSource.register(EmptySource)
    rows = spark.range(ROWS, numPartitions=1).selectExpr("to_json(struct(id)) AS data").cache()
    for _ in range(3):
        rows.mapInArrow(lambda batches: batches, rows.schema).collect()
    cpu, started = cpu_of(os.getpid()), time.perf_counter()
    rows.write.format(source).options(queue=QUEUE, url=url).mode("append").save()
    wall, used = time.perf_counter() - started, cpu_of(os.getpid()) - cpu
    print(json.dumps({"wall": wall, "python": used.python, "jvm": used.jvm, "all": used.python + used.jvm}))
    spark.stop()


def first_write(rounds: int) -> tuple[dict[str, Any], list[Verdict]]:
    runs: dict[str, list[dict[str, float]]] = {EMPTY: [], BULL: []}
    with stock_redis() as server:
        for _ in range(rounds):
            for source, of_side in runs.items():
                command = [sys.executable, "-m", "benchmarks.first_use", "--write", source, server.url]
                shown = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
                of_side.append(json.loads(shown.splitlines()[-1]))
    found = {source: {name: median(run[name] for run in each) for name in each[0]} for source, each in runs.items()}
    for source, used in found.items():
        print(f"{source:12}" + "".join(f"{name:>10}{seconds:6.2f} s" for name, seconds in used.items()))
    for step, modules in STEPS.items():
        print(f"{step:12}{', '.join(f'{name} {ms:.0f} ms' for name, ms in imported(modules).items())}")
    ratio = found[BULL]["all"] / found[EMPTY]["all"]
    return {"runs": runs}, [at_most("CPU of all processes, first write / empty source", FIRST_WRITE, ratio, " x")]


def imported(modules: Sequence[str]) -> Mapping[str, float]:
    """How long a process imports the modules of each package, by -X importtime, ms: the five that take longest."""
    code = "; ".join(f"import {module}" for module in modules)
    command = [sys.executable, "-X", "importtime", "-c", code]
    ran = subprocess.run(command, stderr=subprocess.PIPE, check=True, text=True)
    found: Counter[str] = Counter()
    for line in ran.stderr.splitlines():
        own, _, name = (part.strip() for part in line.removeprefix("import time:").split("|"))
        if own.isdigit():
            found[name.partition(".")[0]] += int(own)
    return {name: us / 1000 for name, us in found.most_common(5)}


PARTS: Final[Mapping[str, Callable[[int], tuple[dict[str, Any], list[Verdict]]]]] = {
    "start": start,
    "first write": first_write,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="runs of each side")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="parts to measure")
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if arguments.write:
        return write_in_new_session(*arguments.write)
    compileall.compile_dir(Path(spark_bull.__file__).parent, quiet=1)
    results: dict[str, Any] = {}
    verdicts: list[Verdict] = []
    for part in arguments.only:
        results[part], wanted = PARTS[part](arguments.rounds)
        verdicts += wanted
    show_verdicts(verdicts)
    write_results("first_use", {**results, "verdicts": [asdict(verdict) for verdict in verdicts]})
    return None


if __name__ == "__main__":
    main()
