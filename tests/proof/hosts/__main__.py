"""Prints what becomes of an application on several hosts under faults: `make hosts`. Needs root and Linux.

    python -m tests.proof.hosts
    python -m tests.proof.hosts --fault "executor host cut from Redis, 5 s"

The exit status is 1 if the books do not balance after a fault.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from spark_bull.core.queue.bull_queue import BullQueue
from tests.proof.books import FINAL, Cell
from tests.proof.hosts.cluster import MASTER, Application, Cluster
from tests.proof.hosts.faults import FAULTS
from tests.proof.hosts.network import FOLDER, HOLDER, start_hosts
from tests.support import all_verbs
from tests.support.wait import wait_until

QUEUE: Final = "hosts"
#: How long the application works before a fault, s.
BEFORE_S: Final = 5.0
#: How long after a fault all jobs may take to end and to be collected, s; what is unfinished then is stuck.
PATIENCE_S: Final = 400.0
_HELD: Final = "--held"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make hosts", description="Prints the books of several hosts under faults.")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="a line of the table; default: all")
    parser.add_argument(_HELD, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if not given.held:
        if not can_hold():
            print("`make hosts` needs Linux, root and network namespaces: run it as root.", file=sys.stderr)
            return 1
        os.execvp(HOLDER[0], [*HOLDER, sys.executable, "-m", "tests.proof.hosts", _HELD, *arguments])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return _prove(given.fault or [*FAULTS])


def can_hold() -> bool:
    try:
        return subprocess.run([*HOLDER, "true"], stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


def _prove(faults: Sequence[str]) -> int:
    cluster = Cluster(start_hosts())
    _say("two worker hosts have registered")
    _all_verbs(cluster)
    application = Application(cluster, QUEUE)
    application.ask("write")
    _wait_for_jobs(cluster)
    lines, broken = [], False
    for name in faults:
        time.sleep(BEFORE_S)
        note = FAULTS[name](cluster, application)
        cell, numbers = _books(cluster, application)
        lines.append(f"| {name} | {numbers} | {cell} | {note} |")
        _say(lines[-1])
        broken |= cell.broken
        application.ask("write")
    application.ask("pause")
    application.end()
    print("| fault | rows | failed writes | jobs | results | books | |\n|---|---|---|---|---|---|---|")
    print("\n".join(lines))
    return 1 if broken else 0


def _all_verbs(cluster: Cluster) -> None:
    program = Path(all_verbs.__file__)
    folder = FOLDER / "verbs"
    folder.mkdir()
    process = cluster.submit(program, cluster.url, str(folder), MASTER)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed.decode() + cluster.log(program)[-8000:]
    _say(f"all verbs: {', '.join(printed.decode().splitlines())}")


def _wait_for_jobs(cluster: Cluster) -> None:
    """The worker runs before the first fault."""
    with BullQueue(QUEUE, url=cluster.url, protocol="bullmq") as queue:
        wait_until(lambda: queue.counts()["completed"], "the first jobs to be completed")


def _books(cluster: Cluster, application: Application) -> tuple[Cell, str]:
    """Waits for all jobs and results; returns the books since the start of the application, and its numbers."""
    said: dict[str, Any] = application.ask("pause")
    with BullQueue(QUEUE, url=cluster.url, protocol="bullmq") as queue:
        _wait(lambda: not any(count for state, count in queue.counts().items() if state not in FINAL))
        jobs = [job for state in queue.counts() for job in queue.page(state, 0, 1_000_000)]
    _wait(lambda: application.ask("collected")[1] >= len(jobs))
    results, collected = application.ask("collected")
    rows = Counter(int(job.data["n"]) for job in jobs)
    lost = len({*said["acknowledged"]} - {*rows}) + len(jobs) - collected
    twice = rows.total() - len(rows) + results - collected
    stuck = sum(job.state not in FINAL for job in jobs) + (said["worker"] != "running") + bool(said["collect"])
    repeats = sum(max(job.attempts_made - 1, 0) for job in jobs)
    numbers = f"{len(said['acknowledged']):,} | {len(said['failed']) // 100} | {len(jobs):,} | {results:,}"
    if said["collect"]:
        _say(f"collect has ended: {said['collect']}")
    return Cell(repeats, lost, twice, stuck), numbers


def _wait(condition: Any) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.5)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
