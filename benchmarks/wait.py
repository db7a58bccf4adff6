"""Benchmark of waiting for the end of a job: BullQueue.wait and BullMQ's waitUntilFinished, in turns on one server.

    make bench            or   .venv/bin/python -m benchmarks.wait --samples 200

Prints percentiles and writes them to benchmarks/results/wait.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final

from benchmarks.report import Verdict, at_most, percentile, show_verdicts, write_results
from benchmarks.trials import Server, Waited, fresh_server
from benchmarks.workers import PEERS, QUEUE, peer_process, peers
from spark_bull import NewJob

OURS, BULLMQ = "spark_bull", "BullMQ"
#: The longest latency of ours, as a ratio to BullMQ's.
TARGET: Final = 1.0
#: Jobs that are added and waited for at the same time, and rounds before the first one that counts.
TOGETHER, WARM_UP = 20, 20

#: Adds so many jobs at once and waits for them; returns the latencies from the processor to the result, ms.
Waiting = Callable[[int], list[float]]


@contextmanager
def ours(server: Server) -> Iterator[Waiting]:
    def waited(job_id: str) -> float:
        started: float = server.queue.wait(job_id, timeout_s=60)
        return time.monotonic_ns() / 1e6 - started

    with ThreadPoolExecutor(TOGETHER) as pool:
        yield lambda jobs: list(pool.map(waited, server.queue.add_many([NewJob({})] * jobs).ids))


@contextmanager
def bullmq(server: Server) -> Iterator[Waiting]:
    with peer_process(["node", str(PEERS / "bullmq_wait.js"), server.url, QUEUE]) as peer:
        peer.expect("ready")

        def waited(jobs: int) -> list[float]:
            peer.send(str(jobs))
            latencies: list[float] = json.loads(peer.line())
            return latencies

        yield waited


def measure(samples: int) -> dict[str, Waited]:
    """Waits for jobs alone, and for several at a time, in turns. A Node worker processes all of them."""
    times: dict[str, list[float]] = {}
    with (
        fresh_server() as server,
        peers("bullmq_process.js", 1, 1, "clock")(server.url),
        ours(server) as by_ours,
        bullmq(server) as by_bullmq,
    ):
        sides = {OURS: by_ours, BULLMQ: by_bullmq}
        for jobs in (1, TOGETHER):
            for number in range(WARM_UP + samples // jobs):
                for side, waiting in sides.items():
                    latencies = waiting(jobs)
                    assert len(latencies) == jobs, f"expected {jobs} results, got {len(latencies)}"
                    if number >= WARM_UP:
                        times.setdefault(f"{side}, {jobs} at a time", []).extend(latencies)
    return {name: Waited(percentile(each, 50), percentile(each, 99), max(each)) for name, each in times.items()}


def verdicts(found: dict[str, Waited]) -> list[Verdict]:
    """Ours must be no slower than BullMQ's, alone and with several at a time."""
    return [
        at_most(f"{jobs} at a time: 99 % of ours / BullMQ", TARGET, mine.p99 / found[f"{BULLMQ}, {jobs} at a time"].p99)
        for jobs in (1, TOGETHER)
        if (mine := found[f"{OURS}, {jobs} at a time"])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2_000, help="jobs of each side and kind")
    found = measure(parser.parse_args().samples)
    print(f"{'from the processor to the result':40}{'50 %, ms':>12}{'99 %, ms':>12}{'longest':>12}")
    for name, waited in found.items():
        print(f"{name:40}{waited.p50:12.2f}{waited.p99:12.2f}{waited.longest:12.2f}")
    show_verdicts(verdicts(found))
    write_results("wait", {"results": {name: asdict(waited) for name, waited in found.items()}})


if __name__ == "__main__":
    main()
