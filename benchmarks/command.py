"""A benchmark with several parts: its command line, and runs of its sides in turns."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from benchmarks.report import Verdict, show_verdicts, write_results
from benchmarks.sides import new_session

#: A dataclass with `jobs` and `rounds`.
Size = TypeVar("Size")
#: A dataclass with the figures of a run.
T = TypeVar("T", bound=Any)
Trial = Callable[[], T]
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


def medians(runs: Mapping[str, Sequence[T]]) -> dict[str, T]:
    """Returns the median of each figure of each trial."""
    found = {}
    for name, of_one in runs.items():
        values = [asdict(run) for run in of_one]
        found[name] = replace(of_one[0], **{key: statistics.median(v[key] for v in values) for key in values[0]})
    return found


def in_turns(trials: Mapping[str, Trial[T]], rounds: int, shown: Callable[[str, T], str]) -> dict[str, list[T]]:
    """Runs each trial once per round, so that other load on the machine affects all alike."""
    runs: dict[str, list[T]] = {name: [] for name in trials}
    for number in range(rounds):
        for name, trial in trials.items():
            runs[name].append(trial())
            print(f"round {number + 1}: {name:34}{shown(name, runs[name][-1])}", flush=True)
    return runs


def by_side(runs: Mapping[str, Sequence[T]]) -> dict[str, Any]:
    return {
        "medians": {name: asdict(run) for name, run in medians(runs).items()},
        "runs": {name: [asdict(run) for run in of_one] for name, of_one in runs.items()},
    }
