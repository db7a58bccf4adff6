"""Measures the costs of a job for docs/concepts/capacity.md, and checks them with one, two and three servers.

    make bench            or   .venv/bin/python -m benchmarks.scale --only servers

Prints the constants and writes them to benchmarks/results/scale.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks.clocked import cpu_of_process
from benchmarks.costs import (
    FEW,
    MANY,
    PAYLOADS,
    FixedCost,
    JobCost,
    Line,
    collecting_batch,
    commit_us,
    compact_memory,
    dispatching_batch,
    median_of,
    memory_of,
    partition,
    per_job,
    verbs_of,
)
from benchmarks.report import Verdict, show_verdicts, write_results
from benchmarks.sharded import Sharded, median_sharded, on_shards, shard_verdicts, shown
from benchmarks.sides import new_session
from benchmarks.stock import stock_redis
from benchmarks.workers import peer_process

PARTS: Final = ("costs", "fixed", "servers", "shards")
SERVERS: Final = (1, 2, 3)
JOBS_PER_SERVER: Final = 60_000
#: Payload of the jobs on several servers.
PAYLOAD: Final = 1_000
#: Redis' CPU per job on several servers may differ so much from that on one, and the rate from the sum.
SAME_CPU, SAME_RATE = 0.10, 0.15


@dataclass(frozen=True)
class Scaled:
    """So many servers at the same time: Redis' CPU in µs per job, on the average of them, and jobs/s of all."""

    redis_us: float
    per_second: float


def on_servers(count: int, jobs: int) -> Scaled:
    """Lives of jobs on servers of their own, each with one client; both wait for each other: a pair takes one core."""
    with ExitStack() as stack:
        servers = [stack.enter_context(stock_redis()) for _ in range(count)]
        command = [sys.executable, "-m", "benchmarks.lives"]
        clients = [
            stack.enter_context(peer_process([*command, server.url, str(jobs), str(PAYLOAD)])) for server in servers
        ]
        for client in clients:
            client.expect("ready")
        before, started = [cpu_of_process(server.pid) for server in servers], time.perf_counter()
        for client in clients:
            client.send("go")
        for client in clients:
            client.expect("done")
        seconds = time.perf_counter() - started
        used = sum(cpu_of_process(server.pid) - cpu for server, cpu in zip(servers, before, strict=True))
    return Scaled(used / count / jobs * 1e6, count * jobs / seconds)


def median_scaled(runs: Sequence[Scaled]) -> Scaled:
    return Scaled(statistics.median(run.redis_us for run in runs), statistics.median(run.per_second for run in runs))


def server_verdicts(found: Mapping[int, Scaled], cores: int) -> list[Verdict]:
    """Compares several servers with one. cores: of this machine; a rate is judged only where each pair has one."""
    one, results = found[1], []
    for count, scaled in found.items():
        if count == 1:
            continue
        cpu = scaled.redis_us / one.redis_us
        results.append(
            Verdict(
                f"{count} servers: Redis' CPU per job, x one", f"1 +- {SAME_CPU}", f"{cpu:.2f}", _near(cpu, SAME_CPU)
            )
        )
        rate = scaled.per_second / one.per_second / count
        if count <= cores:
            what = f"{count} servers: jobs/s, x the sum"
            results.append(Verdict(what, f">= {1 - SAME_RATE}", f"{rate:.2f}", rate >= 1 - SAME_RATE))
        else:
            print(f"{count} servers: jobs/s {rate:.2f} x the sum; {count} pairs need as many cores, this has {cores}")
    return results


def _near(ratio: float, tolerance: float) -> bool:
    return abs(ratio - 1) <= tolerance


def show_costs(
    verbs: Mapping[str, JobCost], memory: Mapping[str, Line], compact: Mapping[str, Line], commit: Line
) -> None:
    """Prints the costs that docs/concepts/capacity.md shows."""
    print()
    for verb, cost in verbs.items():
        print(f"{verb}: {', '.join(f'{part} {_shown(line)}' for part, line in vars(cost).items())}")
    print(f"the driver's commit: {_shown(commit)}")
    for name, lines in (("compact memory", compact), ("memory", memory)):
        print(f"{name}: {', '.join(f'{state} {_shown(line)}' for state, line in lines.items())}")


def _shown(line: Line) -> str:
    return f"{line.base:.3g} + {line.per_kb:.3g} per kB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS, help="parts to run; default: all")
    parser.add_argument("--quick", action="store_true", help="few jobs, to check that it runs")
    args = parser.parse_args()
    rounds = 1 if args.quick else args.rounds
    few, many, each = (1_000, 6_000, 3_000) if args.quick else (FEW, MANY, JOBS_PER_SERVER)
    verdicts: list[Verdict] = []
    report: dict[str, object] = {}

    if "servers" in args.only:
        runs: dict[int, list[Scaled]] = {count: [] for count in SERVERS}
        for number in range(rounds):
            for count in SERVERS:
                runs[count].append(on_servers(count, each))
                print(f"round {number + 1}: {count} servers: {runs[count][-1]}", flush=True)
        found = {count: median_scaled(of_count) for count, of_count in runs.items()}
        verdicts += server_verdicts(found, os.cpu_count() or 1)
        report["servers"] = {str(count): asdict(scaled) for count, scaled in found.items()}
    if set(args.only) & {"costs", "fixed", "shards"}:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        spark = new_session()
    if "shards" in args.only:
        on_shards(spark, 1, each)
        taken: dict[int, list[Sharded]] = {count: [] for count in SERVERS}
        for number in range(rounds):
            for count in SERVERS:
                taken[count].append(on_shards(spark, count, count * each))
                print(f"round {number + 1}: {shown(count, taken[count][-1])}", flush=True)
        sharded = {count: median_sharded(of_count) for count, of_count in taken.items()}
        for count, run in sharded.items():
            print(shown(count, run))
        verdicts += shard_verdicts(sharded)
        report["shards"] = {str(count): asdict(run) for count, run in sharded.items()}
    if "costs" in args.only:
        per_job(spark, PAYLOADS[0], few, many)
        costs = {}
        for payload in PAYLOADS:
            costs[payload] = median_of([per_job(spark, payload, few, many) for _ in range(rounds)])
            print(f"{payload:,} bytes: {costs[payload]}", flush=True)
        verbs, memory = verbs_of(costs), memory_of(costs)
        commit = Line(statistics.median(commit_us(many) for _ in range(rounds)), 0.0)
        compact = compact_memory(few, many)
        show_costs(verbs, memory, compact, commit)
        report |= {"verbs": {verb: asdict(cost) for verb, cost in verbs.items()}, "commit": asdict(commit)}
        for name, lines in (("compact memory", compact), ("memory", memory)):
            report[name] = {state: asdict(line) for state, line in lines.items()}
    if "fixed" in args.only:
        measures = {
            "partition": partition,
            "dispatching batch": dispatching_batch,
            "collecting batch": collecting_batch,
        }
        for name, measure in measures.items():
            measure(spark)
            each_run = [asdict(measure(spark)) for _ in range(rounds)]
            cost = FixedCost(**{part: statistics.median(run[part] for run in each_run) for part in each_run[0]})
            print(f"{name}: {cost}", flush=True)
            report[name] = asdict(cost)
    show_verdicts(verdicts)
    name = "scale" if set(args.only) == set(PARTS) else f"scale-{'-'.join(args.only)}"
    write_results(name, {**report, "verdicts": [asdict(verdict) for verdict in verdicts]})


if __name__ == "__main__":
    main()
