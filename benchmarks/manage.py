"""Benchmark of clean, drain, obliterate and repair on large queues, while another client sends PING.

    make bench            or   .venv/bin/python -m benchmarks.manage --jobs 200000

Prints medians and writes them to benchmarks/results/manage.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import Final

from benchmarks import repair
from benchmarks.filling import pending, plain
from benchmarks.probes import pinged
from benchmarks.report import Verdict, at_most, show_verdicts, write_results
from benchmarks.sides import new_session, timed
from benchmarks.trials import Server, cpu_seconds, fresh_server, run_yardstick, script_ms
from benchmarks.workers import PEERS, QUEUE, peer_process
from spark_bull import BullQueue

#: PING times of other clients and script durations, as ratios to the yardstick.
PING_TARGET, SCRIPT_TARGET = 1.0, 1.0
OURS, BULLMQ, YARDSTICK = "spark_bull", "BullMQ", "yardstick"

VERBS: Final[Mapping[str, Callable[[BullQueue], object]]] = {
    "clean": lambda queue: queue.clean(0, state="wait"),
    "drain": lambda queue: queue.drain(delayed=True),
    "obliterate": lambda queue: queue.obliterate(),
}
#: States that a verb leaves unchanged.
KEPT: Final[Mapping[str, tuple[str, ...]]] = {"clean": ("delayed",), "drain": (), "obliterate": ()}

PARTS: Final = (*KEPT, "repair")

#: Prepares an action on a server and yields the function that performs it.
Preparation = Callable[[Server], AbstractContextManager[Callable[[], object]]]


@dataclass(frozen=True)
class Managed:
    """Times in ms, except `seconds`. PING times are those of another client. server: CPU time of Redis."""

    seconds: float
    ping_p99: float
    ping_longest: float
    script_p50: float
    script_longest: float
    server: float


@contextmanager
def ours(verb: str, server: Server) -> Iterator[Callable[[], object]]:
    yield partial(VERBS[verb], server.queue)


@contextmanager
def bullmq(verb: str, jobs: int, server: Server) -> Iterator[Callable[[], object]]:
    with peer_process(["node", str(PEERS / "bullmq_manage.js"), server.url, QUEUE, str(jobs), verb]) as peer:
        peer.expect("ready")

        def run() -> None:
            peer.send("go")
            peer.expect("done")

        yield run


@contextmanager
def scripts(server: Server) -> Iterator[Callable[[], object]]:
    yield partial(run_yardstick, server.client)


def measure(prepare: Preparation, jobs: int, kept: Sequence[str]) -> Managed:
    """Measures an action on a fresh server with jobs, half of them delayed. kept: states with jobs afterwards."""
    with fresh_server() as server:
        server.queue.add_many(chain(plain(jobs // 2), pending(jobs // 2)))
        managed = run_on(server, prepare)
        left = tuple(state for state, count in server.queue.counts().items() if count)
        assert left == tuple(kept), f"expected jobs in {kept} only, got {server.queue.counts()}"
        return managed


def measure_repair(prepare: Preparation, jobs: int, repairs: bool) -> Managed:
    """Measures an action on a fresh server with jobs, some of them failed. repairs: whether it repairs these."""
    with fresh_server() as server:
        repair.fill(server.queue, jobs)
        managed = run_on(server, prepare)
        if repairs:
            repair.check(server, jobs)
        return managed


def run_on(server: Server, prepare: Preparation) -> Managed:
    with prepare(server) as run:
        server.client.slowlog_reset()
        cpu = cpu_seconds(server.client)
        with pinged(server.port) as pings:
            seconds = timed(run)
        server_ms = (cpu_seconds(server.client) - cpu) * 1000
    return Managed(seconds, pings.p99, pings.longest, *script_ms(server.client), server_ms)


def median_of(runs: Sequence[Managed]) -> Managed:
    return Managed(*(statistics.median(asdict(run)[name] for run in runs) for name in asdict(runs[0])))


def verdicts(verb: str, found: Mapping[str, Managed]) -> list[Verdict]:
    mine, yard = found[OURS], found[YARDSTICK]
    return [
        at_most(f"{verb}, PING p99, x yardstick", PING_TARGET, mine.ping_p99 / yard.ping_p99),
        at_most(f"{verb}, script, median, x yardstick", SCRIPT_TARGET, mine.script_p50 / yard.script_p50),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--repair-jobs", type=int, default=1_000_000, help="jobs of `repair`, a tenth of them failed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    parser.add_argument("--quick", action="store_true", help="one round of 10,000 jobs, to check that it runs")
    args = parser.parse_args()
    jobs, rounds, repair_jobs = (10_000, 1, 10_000) if args.quick else (args.jobs, args.rounds, args.repair_jobs)
    all_verdicts: list[Verdict] = []
    runs: dict[str, dict[str, list[Managed]]] = {}
    for verb in [part for part in args.only if part in KEPT]:
        runs[verb] = whole_queue(verb, jobs, rounds)
        found = {name: median_of(of_one) for name, of_one in runs[verb].items()}
        show(verb, found)
        all_verdicts += verdicts(verb, found)
    if "repair" in args.only:
        runs["repair"] = repairs(repair_jobs, rounds)
        found = {name: median_of(of_one) for name, of_one in runs["repair"].items()}
        show("repair", found)
        mine, yard = found[OURS], found[YARDSTICK]
        all_verdicts += repair.verdicts(mine.seconds, mine.ping_p99, found[BULLMQ].seconds, yard.ping_p99)
    show_verdicts(all_verdicts)
    report = {verb: {name: [asdict(run) for run in of_one] for name, of_one in of.items()} for verb, of in runs.items()}
    write_results(
        "manage",
        {
            "jobs": jobs,
            "repair_jobs": repair_jobs,
            "runs": report,
            "verdicts": [asdict(verdict) for verdict in all_verdicts],
        },
    )


def whole_queue(verb: str, jobs: int, rounds: int) -> dict[str, list[Managed]]:
    """Measures a verb for a whole queue, in turns."""
    sides: dict[str, tuple[Preparation, Sequence[str]]] = {
        OURS: (partial(ours, verb), KEPT[verb]),
        BULLMQ: (partial(bullmq, verb, jobs), KEPT[verb]),
        YARDSTICK: (scripts, ("wait", "delayed")),
    }
    runs: dict[str, list[Managed]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, (prepare, left) in sides.items():
            runs[name].append(measure(prepare, jobs, left))
    return runs


def repairs(jobs: int, rounds: int) -> dict[str, list[Managed]]:
    """Measures how failed jobs are mended and retried."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = new_session()
    sides: dict[str, tuple[Preparation, bool]] = {
        OURS: (partial(repair.ours, spark), True),
        BULLMQ: (repair.bullmq, True),
        YARDSTICK: (scripts, False),
    }
    runs: dict[str, list[Managed]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, (prepare, is_repair) in sides.items():
            runs[name].append(measure_repair(prepare, jobs, is_repair))
    spark.stop()
    return runs


def show(verb: str, found: Mapping[str, Managed]) -> None:
    print(f"\n{verb:14}{'seconds':>9}{'PING p99':>10}{'longest':>9}{'script p50':>12}{'longest':>9}{'Redis CPU':>13}")
    for name, run in found.items():
        print(
            f"{name:14}{run.seconds:9.2f}{run.ping_p99:10.2f}{run.ping_longest:9.2f}{run.script_p50:12.2f}"
            f"{run.script_longest:9.2f}{run.server:10.0f} ms"
        )


if __name__ == "__main__":
    main()
