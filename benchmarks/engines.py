"""Benchmark of the CPU time of all processes per job: both engines, BullMQ's worker, and another version of ours.

    .venv/bin/python -m benchmarks.engines --against ../main --rounds 3

--against: a checkout of the other version. Every side is started anew on a fresh server, and warmed up. Prints medians
and writes them to benchmarks/results/engines.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.clocked import cpu_of_process
from benchmarks.filling import passing, plain
from benchmarks.probes import cpu_of, pinged
from benchmarks.report import at_most, show_verdicts, write_results
from benchmarks.trials import Server, check_all_completed, fresh_server, resume_and_wait, wait_until
from benchmarks.workers import PEERS, QUEUE, peer_process

ROOT: Final = Path(__file__).parents[1]
PROGRAM: Final = ROOT / "benchmarks" / "one_engine.py"
BULLMQ: Final = "BullMQ, 1 x 100"
#: CPU time of all processes and of Redis for a job of the engine `stream`, as ratios to BullMQ's.
ALL_TARGET, REDIS_TARGET = 0.4, 0.43
#: Jobs that warm up a JVM; a query has its largest micro-batches after them.
WARM_UP: Final = 300_000
#: Of these, those that come first, alone.
FIRST: Final = 10_000
#: Arguments of one_engine.py, by the name of a side.
ENGINES: Final = {
    "stream, function of DataFrames": ("stream", "frame"),
    "stream, UDF": ("stream", "udf"),
    "loop, function": ("loop", "function"),
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
    """A program that works on QUEUE of the server with a URL, and the PYTHONPATH that it gets."""

    program: list[str]
    options: list[str]
    root: Path = ROOT

    def command(self, url: str) -> list[str]:
        return ["env", f"PYTHONPATH={self.root}", *self.program, url, QUEUE, *self.options]


def sides_of(kinds: list[str], against: Path | None, options: list[str]) -> dict[str, Side]:
    """The sides by name. options: arguments of Worker, for the engine `stream`."""
    sides = {}
    for kind in kinds:
        engine, processor = ENGINES[kind]
        program = [sys.executable, str(PROGRAM), engine, processor]
        ours = Side(program, options if engine == "stream" else [])
        sides[kind] = ours
        if against:
            sides[f"{kind}, other"] = ours._replace(root=against.resolve())
    sides[BULLMQ] = Side(["node", str(PEERS / "bullmq_process.js")], ["100", "noop"])
    return sides


def measured(side: Side, jobs: int, warm_up: int) -> Used:
    """Runs a worker on a fresh server, whose queue is filled while it is paused."""
    with fresh_server() as server:
        pid = int(server.client.info("server")["process_id"])
        with peer_process(side.command(server.url)) as peer:
            peer.expect("ready")
            first = min(FIRST, warm_up)
            for size in (first, warm_up - first):
                server.queue.pause()
                server.queue.add_many(passing(size))
                resume_and_drain(server)
            server.queue.pause()
            server.queue.add_many(plain(jobs))
            with pinged(server.port) as pings:
                others, own, began = cpu_of(peer.pid), cpu_of_process(pid), time.perf_counter()
                resume_and_wait(server, jobs)
                seconds = time.perf_counter() - began
                of_redis, used = cpu_of_process(pid) - own, cpu_of(peer.pid) - others
        check_all_completed(server.client, range(warm_up + 1, warm_up + jobs + 1))
    parts = (each / jobs * 1e6 for each in (of_redis, used.python, used.jvm, used.node))
    redis_us, python, jvm, node = parts
    return Used(redis_us + python + jvm + node, redis_us, python, jvm, node, jobs / seconds, pings.p99)


def resume_and_drain(server: Server) -> None:
    server.queue.resume()
    wait_until(lambda: not any(server.queue.counts().values()))


def median_of(runs: list[Used]) -> Used:
    return Used(*map(statistics.median, zip(*runs, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--kinds", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--options", nargs="+", default=[], help="arguments of Worker, such as maxJobsPerTrigger=50000")
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--warm-up", type=int, default=WARM_UP)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    runs: dict[str, list[Used]] = {}
    print(f"{'':40}{'jobs/s':>9}" + "".join(f"{name:>9}" for name in Used._fields[:-2]) + f"{'PING 99 %':>12}")
    for number in range(args.rounds):
        for name, side in sides_of(args.kinds, args.against, args.options).items():
            runs.setdefault(name, []).append(measured(side, args.jobs, args.warm_up))
            show(f"{number + 1}: {name}", runs[name][-1])
    found = {name: median_of(of_side) for name, of_side in runs.items()}
    print("\nmedians, CPU time per job in us")
    for name, used in found.items():
        show(name, used)
    theirs, stream = found[BULLMQ], next(iter(ENGINES))
    verdicts = [
        at_most(f"{stream}, CPU of {what}, x BullMQ", most, getattr(found[stream], what) / getattr(theirs, what))
        for what, most in (("all", ALL_TARGET), ("redis", REDIS_TARGET))
        if stream in found
    ]
    show_verdicts(verdicts)
    results = {name: [used._asdict() for used in of_side] for name, of_side in runs.items()}
    write_results("engines", {"runs": results, "verdicts": [asdict(verdict) for verdict in verdicts]})


def show(name: str, used: Used) -> None:
    parts = "".join(f"{part:9.1f}" for part in used[:-2])
    print(f"{name:40}{used.rate:9,.0f}{parts}{used.ping:9.1f} ms", flush=True)


if __name__ == "__main__":
    main()
