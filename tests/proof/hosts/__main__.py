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
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from spark_bull.core.queue.bull_queue import BullQueue
from tests.proof import all_verbs
from tests.proof.hosts.books import TITLES, Books
from tests.proof.hosts.cluster import MASTER, Application, Cluster
from tests.proof.hosts.faults import FAULTS
from tests.proof.hosts.network import FOLDER, HOLDER, start_hosts

QUEUE: Final = "hosts"
_HELD: Final = "--held"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make hosts", description="Prints the books of several hosts under faults.")
    line = "a line of the table; default: all"
    parser.add_argument("--fault", action="append", choices=FAULTS, metavar="NAME", help=line)
    parser.add_argument(_HELD, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if not given.held:
        if not can_hold():
            print("`make hosts` cuts networks: install iptables, and run it as root on Linux.", file=sys.stderr)
            return 1
        os.execvp(HOLDER[0], [*HOLDER, sys.executable, "-m", "tests.proof.hosts", _HELD, *arguments])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return _prove(given.fault or [*FAULTS])


def can_hold() -> bool:
    try:
        return subprocess.run([*HOLDER, "iptables", "--version"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _prove(faults: Sequence[str]) -> int:
    cluster = Cluster(start_hosts())
    _say("two worker hosts have registered")
    _all_verbs(cluster)
    application = Application(cluster, QUEUE)
    lines, broken = [], False
    with BullQueue(QUEUE, url=cluster.url, protocol="bullmq") as queue:
        for name in faults:
            application.ask("write")
            application.busy_host()
            note = FAULTS[name](cluster, application, queue)
            books = Books.read(application, queue)
            lines.append(f"| {name} | {books} | {note} |")
            _say(lines[-1])
            broken |= books.cell.broken
    application.end()
    print(f"From {date.today()}, `make hosts`:\n\n{TITLES}")
    print("\n".join(lines))
    return 1 if broken else 0


def _all_verbs(cluster: Cluster) -> None:
    program = Path(all_verbs.__file__)
    folder = FOLDER / "verbs"
    folder.mkdir()
    process = cluster.submit(program, cluster.url, str(folder), MASTER, prints=subprocess.PIPE)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed.decode() + cluster.log(program)[-8000:]
    _say(f"all verbs: {', '.join(printed.decode().splitlines())}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
