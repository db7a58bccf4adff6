"""The command line of a benchmark with several parts: runs the selected parts, prints and stores the results."""

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


def run_parts(
    name: str, description: str, parts: Mapping[str, Part[Size]], size: Size, quick: Size, **settings: str
) -> None:
    """Runs the selected parts and writes results/<name>.json.

    description: text for --help. quick: size of a short run whose figures are meaningless.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts), help="parts to measure")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="one short round, to check that it runs")
    args = parser.parse_args()
    given = {name: number for name, number in (("jobs", args.jobs), ("rounds", args.rounds)) if number is not None}
    size = replace(quick if args.quick else size, **given)  # type: ignore[type-var]

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = new_session(**settings)
    results: dict[str, Any] = {}
    all_verdicts: list[Verdict] = []
    for part in args.only:
        print(f"\n{part}", flush=True)
        results[part], verdicts = parts[part](spark, size)
        all_verdicts += verdicts
    spark.stop()
    show_verdicts(all_verdicts)
    write_results(name, {"size": asdict(size), **results, "verdicts": [asdict(verdict) for verdict in all_verdicts]})  # type: ignore[call-overload]
