"""Benchmark of the CPU time of all processes per job: slots and queries, BullMQ's worker, and another version of ours.

    .venv/bin/python -m benchmarks.working --against ../main --rounds 7

--against: a checkout of the other version. The workers of all sides are started first, each on a server of its own; in
each round, one after the other gets jobs, so that all are measured at about the same speed of the machine. Prints
medians, and medians of the ratios within a round, and writes them to benchmarks/results/working.json. See
benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.filling import passing, plain
from benchmarks.probes import cpu_of, cpu_of_process, pinged
from benchmarks.report import at_least, at_most, show_verdicts, write_results
from benchmarks.trials import Server, check_all_completed, fresh_server, resume_and_wait, wait_until
from benchmarks.workers import PEERS, QUEUE, Peer, peer_process
from spark_bull import NewJob

ROOT: Final = Path(__file__).parents[1]
PROGRAM: Final = ROOT / "benchmarks" / "one_worker.py"
BULLMQ: Final = "BullMQ, 1 x 100"
#: CPU time of all processes and of Redis for a job of QUERY, as ratios to BullMQ's.
ALL_TARGET, REDIS_TARGET = 0.8, 0.65
#: Jobs that warm up a JVM; a query has its largest micro-batches after them.
WARM_UP: Final = 300_000
#: Jobs before these, and before each measurement, as Spark's idle Python processes end.
FIRST: Final = 10_000


class Kind(NamedTuple):
    """A kind of our workers: arguments of one_worker.py, and the least jobs/s, as a ratio to BullMQ's."""

    way: str
    processor: str
    options: tuple[str, ...]
    rate_target: float


QUERY: Final = "query, function of DataFrames"
KINDS: Final = {
    QUERY: Kind("query", "frame", (), 1.3),
    "slot, function of DataFrames": Kind("slots", "frame", (), 1.3),
    "slots, function": Kind("slots", "function", ("slots=2",), 2.9),
    "slots, UDF": Kind("slots", "udf", ("slots=2",), 2.6),
}


class Used(NamedTuple):
    """CPU time per job, µs; jobs/s; the PING of another client, ms (99 %)."""

    all: float
    redis: float
    python: float
    jvm: float
    node: float
    rate: float
    ping: float


class Side(NamedTuple):
    """A program that works on QUEUE of the server with a URL, and the checkout that it runs in.

    Its directory is that, too: Spark's Python processes import from there before they look into PYTHONPATH.
    """

    program: list[str]
    options: tuple[str, ...]
    root: Path = ROOT

    def command(self, url: str) -> list[str]:
        return ["env", f"--chdir={self.root}", f"PYTHONPATH={self.root}", *self.program, url, QUEUE, *self.options]


def sides_of(kinds: list[str], against: Path | None, variant: list[str]) -> dict[str, Side]:
    """The sides by name. variant: arguments of a further worker of each kind."""
    sides = {}
    for name in kinds:
        kind = KINDS[name]
        ours = sides[name] = Side([sys.executable, str(PROGRAM), kind.way, kind.processor], kind.options)
        if variant:
            sides[f"{name}, {' '.join(variant)}"] = ours._replace(options=(*kind.options, *variant))
        if against:
            sides[f"{name}, other"] = ours._replace(root=against.resolve())
    sides[BULLMQ] = Side(["node", str(PEERS / "bullmq_process.js")], ("100", "noop"))
    return sides


@dataclass
class Running:
    """A worker on a server of its own. The queue is paused between measurements. added: the jobs added so far."""

    server: Server
    worker: Peer
    added: int = 0

    @property
    def redis_pid(self) -> int:
        return int(self.server.client.info("server")["process_id"])

    def warm_up(self, jobs: int) -> None:
        self.add(passing(jobs), jobs)
        self.server.queue.resume()
        wait_until(lambda: not any(self.server.queue.counts().values()))

    def measured(self, jobs: int) -> Used:
        """Works off a queue that is filled while it is paused."""
        self.warm_up(FIRST)
        ids = range(self.added + 1, self.added + jobs + 1)
        self.add(plain(jobs), jobs)

        def work_off() -> int:
            resume_and_wait(self.server, jobs)
            return jobs

        used = self.used_by(work_off)
        self.server.queue.pause()
        check_all_completed(self.server.client, ids)
        self.server.queue.clean()
        return used

    def used_by(self, act: Callable[[], int]) -> Used:
        """What is used for each of the jobs that `act` lets the worker process; it returns their number."""
        pid = self.redis_pid
        with pinged(self.server.port) as pings:
            others, own, began = cpu_of(self.worker.pid), cpu_of_process(pid), time.perf_counter()
            jobs = act()
            seconds = time.perf_counter() - began
            of_redis, used = cpu_of_process(pid) - own, cpu_of(self.worker.pid) - others
        redis_us, python, jvm, node = (each / jobs * 1e6 for each in (of_redis, used.python, used.jvm, used.node))
        return Used(redis_us + python + jvm + node, redis_us, python, jvm, node, jobs / seconds, pings.p99)

    def add(self, jobs: Iterable[NewJob], count: int) -> None:
        self.server.queue.pause()
        self.server.queue.add_many(jobs)
        self.added += count


@contextmanager
def running(side: Side) -> Iterator[Running]:
    with fresh_server() as server, peer_process(side.command(server.url)) as worker:
        worker.expect("ready")
        yield Running(server, worker)


def median_of(runs: list[Used]) -> Used:
    return Used(*map(statistics.median, zip(*runs, strict=True)))


def ratios_of(runs: list[Used], others: list[Used], what: str) -> list[float]:
    """The ratios of two sides within each round."""
    return [getattr(one, what) / getattr(other, what) for one, other in zip(runs, others, strict=True)]


def ratio_of(runs: list[Used], others: list[Used], what: str) -> float:
    """The median of these ratios."""
    return statistics.median(ratios_of(runs, others, what))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--variant", nargs="+", default=[], help="arguments of further workers, such as chunk_size=250")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--warm-up", type=int, default=WARM_UP)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    runs: dict[str, list[Used]] = {}
    show_header()
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(running(side))
            for name, side in sides_of(args.kinds, args.against, args.variant).items()
        }
        for side in sides.values():
            side.warm_up(FIRST)
            side.warm_up(args.warm_up)
        for number in range(args.rounds):
            for name, side in sides.items():
                runs.setdefault(name, []).append(side.measured(args.jobs))
                show(f"{number + 1}: {name}", runs[name][-1])
    print("\nmedians, CPU time per job in us, and the ratios to BullMQ")
    for name, of_side in runs.items():
        show(name, median_of(of_side))
        ratios = [f"{what} {ratio_of(of_side, runs[BULLMQ], what):.2f} x" for what in ("rate", "all", "redis")]
        print(" " * 44 + ", ".join(ratios))
    verdicts = [
        at_least(f"{name}, jobs/s, x BullMQ", KINDS[name].rate_target, ratio_of(runs[name], runs[BULLMQ], "rate"))
        for name in args.kinds
    ]
    verdicts += [
        at_most(f"{QUERY}, CPU of {what}, x BullMQ", most, ratio_of(runs[QUERY], runs[BULLMQ], what))
        for what, most in (("all", ALL_TARGET), ("redis", REDIS_TARGET))
        if QUERY in runs
    ]
    show_verdicts(verdicts)
    results = {name: [used._asdict() for used in of_side] for name, of_side in runs.items()}
    write_results("working", {"runs": results, "verdicts": [asdict(verdict) for verdict in verdicts]})


def show_header() -> None:
    print(f"{'':44}{'jobs/s':>9}" + "".join(f"{name:>9}" for name in Used._fields[:-2]) + f"{'PING 99 %':>12}")


def show(name: str, used: Used) -> None:
    parts = "".join(f"{part:9.1f}" for part in used[:-2])
    print(f"{name:44}{used.rate:9,.0f}{parts}{used.ping:9.1f} ms", flush=True)


if __name__ == "__main__":
    main()
