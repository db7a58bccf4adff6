"""The command line of a benchmark that has parts: measures those asked for, shows and keeps what came out."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from benchmarks.report import Verdict, show_verdicts, write_results
from benchmarks.sides import new_session

#: A dataclass with `jobs` and `rounds`.
Size = TypeVar("Size")
Part = Callable[[SparkSession, Size], tuple[dict[str, Any], list[Verdict]]]


def run_parts(name: str, what: str, parts: Mapping[str, Part[Size]], size: Size, quick: Size, **settings: str) -> None:
    """Writes results/<name>.json. `what`: a line for --help; `quick`: the size of a run that means nothing."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts), help="parts to measure")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="one round of little: does it run?")
    args = parser.parse_args()
    given = {name: number for name, number in (("jobs", args.jobs), ("rounds", args.rounds)) if number is not None}
    size = replace(quick if args.quick else size, **given)  # type: ignore[type-var]

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = new_session(**settings)
    results: dict[str, Any] = {}
    told: list[Verdict] = []
    for part in args.only:
        print(f"\n{part}", flush=True)
        results[part], verdicts = parts[part](spark, size)
        told += verdicts
    spark.stop()
    show_verdicts(told)
    write_results(name, {"size": asdict(size), **results, "verdicts": [asdict(verdict) for verdict in told]})  # type: ignore[call-overload]
