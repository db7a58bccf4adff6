"""Benchmark of the CPU time of a slot per job, of this version of the package and of another one in turns.

    .venv/bin/python -m benchmarks.slots --against ../main --rounds 5

--against: a checkout of the other version. Prints medians and writes them to benchmarks/results/slots.json. See
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.report import Verdict, at_most, show_verdicts, write_results
from benchmarks.stock import stock_redis

ROOT: Final = Path(__file__).parents[1]
PROGRAM: Final = ROOT / "benchmarks" / "one_slot.py"
BARE: Final = ROOT / "benchmarks" / "bare_slot.py"


class Case(NamedTuple):
    """What a slot does. target_us: Python's CPU per job, or Redis' per empty call, µs; 0: none."""

    kind: str
    chunk: int
    jobs: int
    target_us: float = 0.0

    @property
    def is_bare(self) -> bool:
        return self.kind.startswith("bare")

    def __str__(self) -> str:
        return f"{self.kind}, {self.chunk}"


CASES: Final = (
    Case("bare", 100, 40_000),
    Case("bare", 200, 40_000),
    Case("function", 100, 40_000, 5.0),
    Case("function", 200, 40_000),
    Case("udf", 200, 40_000, 8.5),
    Case("bare_demo", 200, 40_000),
    Case("demo", 200, 40_000, 19.5),
    Case("empty", 100, 10_000, 50.0),
)


class Used(NamedTuple):
    """CPU time per job or call, µs."""

    python: float
    redis: float


def measured(case: Case, root: Path) -> Used:
    """Runs a slot of a version on a fresh server."""
    with stock_redis() as server:
        program = BARE if case.is_bare else PROGRAM
        command = [sys.executable, str(program), case.kind, str(case.chunk), str(case.jobs), server.url]
        environment = os.environ | {"PYTHONPATH": str(root)}
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return Used(**json.loads(done.stdout))


def median_of(runs: list[Used]) -> Used:
    return Used(*map(statistics.median, zip(*runs, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--kinds", nargs="+", default=[case.kind for case in CASES])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    sides = {"ours": ROOT} | ({"other": args.against.resolve()} if args.against else {})

    verdicts: list[Verdict] = []
    results = {}
    print(f"{'':16}{'':8}{'Python, us':>12}{'Redis, us':>12}{'x other':>10}{'x other, Redis':>16}")
    for case in CASES:
        if case.kind not in args.kinds:
            continue
        measured_sides = {"ours": ROOT} if case.is_bare else sides
        runs: dict[str, list[Used]] = {side: [] for side in measured_sides}
        for _ in range(args.rounds):
            for side, root in measured_sides.items():
                runs[side].append(measured(case, root))
        found = {side: median_of(of_side) for side, of_side in runs.items()}
        for side, used in reversed(found.items()):
            other = found.get("other", used)
            ratios = f"{used.python / other.python:10.2f}{used.redis / other.redis:16.2f}"
            print(f"{case!s:16}{side:8}{used.python:12.2f}{used.redis:12.2f}{ratios}", flush=True)
        results[str(case)] = {side: [used._asdict() for used in of_side] for side, of_side in runs.items()}
        if case.target_us:
            ours, whose = found["ours"], "redis" if case.kind == "empty" else "python"
            verdicts.append(at_most(f"{case}, CPU of {whose}, us", case.target_us, getattr(ours, whose)))
    show_verdicts(verdicts)
    write_results(
        "slots", {"rounds": args.rounds, "runs": results, "verdicts": [asdict(verdict) for verdict in verdicts]}
    )


if __name__ == "__main__":
    main()
