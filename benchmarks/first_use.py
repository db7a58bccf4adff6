"""Benchmark of the first use: the first write, read and stream of a session, and the command `spark-bull counts`.

    make bench            or   .venv/bin/python -m benchmarks.first_use --rounds 3

Prints medians and writes them to benchmarks/results/first_use.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.finishing import fill_finished
from benchmarks.first_session import JOBS, KINDS, Use
from benchmarks.report import Verdict, at_most, show_verdicts, write_results
from benchmarks.sides import timed
from benchmarks.trials import Server, fresh_server
from benchmarks.workers import PEERS, QUEUE

ROOT: Final = Path(__file__).parents[1]
OURS, EMPTY = "bull", "empty"
#: Environments in which Spark discovers only one of them, and one with both, whose session is warm: it has used the
#: other source before, so that Spark's Python processes run.
WARM: Final = "warm"
#: The uses in a session of each environment.
USES: Final = {EMPTY: (EMPTY, EMPTY), OURS: (OURS, OURS), WARM: (EMPTY, EMPTY, EMPTY, OURS)}
#: The first write and read, as ratios to those of a data source that does nothing; the first write in a warm session.
TARGET, WARM_TARGET = 1.3, 1.5
#: The command, in s more than an interpreter that does nothing.
COMMAND_TARGET_S: Final = 0.3
COMMANDS: Final = {
    "python -c pass": ["-c", "pass"],
    "spark-bull counts": ["-m", "spark_bull.cli", "counts", QUEUE],
}


@contextmanager
def environments() -> Iterator[dict[str, dict[str, str]]]:
    """The environments by name; see USES."""
    with tempfile.TemporaryDirectory() as folder:
        # Spark imports all packages `pyspark_*` that it finds; this one stands before ours on the path.
        hidden = Path(folder, "pyspark_bull")
        hidden.mkdir()
        (hidden / "__init__.py").touch()
        other = PEERS / "installed"
        paths = {OURS: [ROOT], EMPTY: [Path(folder), other, ROOT], WARM: [other, ROOT]}
        shared = os.environ | {"PYSPARK_PYTHON": sys.executable}
        yield {side: shared | {"PYTHONPATH": os.pathsep.join(map(str, path))} for side, path in paths.items()}


def uses(kind: str, side: str, environment: dict[str, str]) -> list[Use]:
    """Uses data sources in a fresh session on a fresh server. side: name of the environment."""
    with fresh_server() as server:
        if kind != "write":
            fill_finished(server.queue, JOBS)
        command = [sys.executable, "-m", "benchmarks.first_session", kind, ",".join(USES[side]), server.url]
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        found = [Use(**json.loads(line)) for line in done.stdout.splitlines()]
        if kind == "write":
            waiting = server.queue.counts()["wait"]
            assert waiting == JOBS * USES[side].count(OURS), f"expected {JOBS} jobs per write, got {waiting}"
        return found


def sessions(rounds: int) -> dict[str, dict[str, list[list[Use]]]]:
    """Measures sessions in turns; returns the uses in each session, by kind and environment."""
    found: dict[str, dict[str, list[list[Use]]]] = {kind: {side: [] for side in USES} for kind in KINDS}
    with environments() as by_side:
        for _ in range(rounds):
            for kind, runs in found.items():
                for side, run in runs.items():
                    run.append(uses(kind, side, by_side[side]))
    return found


def median_of(sessions: Sequence[Sequence[Use]], number: int) -> Use:
    """Returns the medians of the first, second, … uses of several sessions."""
    rows = [asdict(uses[number]) for uses in sessions]
    return Use(**{name: statistics.median(row[name] for row in rows) for name in rows[0]})


def commands(rounds: int) -> dict[str, dict[str, float]]:
    """Measures commands in turns: wall-clock and CPU time, s."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    with fresh_server() as server:
        fill_finished(server.queue, JOBS)
        for _ in range(rounds):
            for name, runs in found.items():
                runs.append(_command(server, COMMANDS[name]))
    return {
        name: {"seconds": statistics.median(times[0] for times in runs), "cpu": statistics.median(t[1] for t in runs)}
        for name, runs in found.items()
    }


def _command(server: Server, arguments: list[str]) -> tuple[float, float]:
    environment = os.environ | {"SPARK_BULL_URL": server.url, "PYTHONPATH": str(ROOT)}

    def run() -> None:
        subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)

    before = _cpu_of_children()
    return timed(run), _cpu_of_children() - before


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compared(what: str, empty: Use, ours: Use) -> float:
    """Prints a use of each data source; returns the ratio of their times."""
    for side, use in ((EMPTY, empty), (OURS, ours)):
        ratios = f"{use.seconds / empty.seconds:10.2f}{use.python_cpu / empty.python_cpu:18.2f}"
        print(f"{f'{what}, {side}':24}{use.seconds:8.2f}{use.jvm_cpu:14.2f}{use.python_cpu:16.2f}{ratios}")
    return ours.seconds / empty.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds

    by_command = commands(5 * rounds)
    by_kind = sessions(rounds)

    print(f"{'':24}{'s':>8}{'CPU: JVM, s':>14}{'CPU: Python, s':>16}{'x empty':>10}{'x empty, Python':>18}")
    verdicts: list[Verdict] = []
    for kind, by_side in by_kind.items():
        for number, which in enumerate(("first", "second")):
            ratio = compared(f"{which} {kind}", *(median_of(by_side[side], number) for side in (EMPTY, OURS)))
            if which == "first":
                verdicts.append(at_most(f"first {kind}, x empty source", TARGET, ratio))
        ratio = compared(f"warm {kind}", *(median_of(by_side[WARM], number) for number in (-2, -1)))
        verdicts.append(at_most(f"first {kind} in a warm session, x empty source", WARM_TARGET, ratio))
    for name, times in by_command.items():
        print(f"{name:24}{times['seconds']:8.2f}{times['cpu']:30.2f}")
    idle, counts = (times["seconds"] for times in by_command.values())
    verdicts.append(at_most("spark-bull counts, more than python -c pass", COMMAND_TARGET_S, counts - idle, " s"))
    show_verdicts(verdicts)
    results = {
        kind: {side: [[asdict(use) for use in uses] for uses in runs] for side, runs in by_side.items()}
        for kind, by_side in by_kind.items()
    }
    write_results(
        "first_use",
        {
            "rounds": rounds,
            "sessions": results,
            "commands": by_command,
            "verdicts": [asdict(verdict) for verdict in verdicts],
        },
    )


if __name__ == "__main__":
    main()
