"""Prints the table of faults: `make faults`, or a part of it.

    python -m tests.proof.table                                            all
    python -m tests.proof.table --fault "driver killed" --promise write    one cell
    python -m tests.proof.table --only histories                           histories, planted errors and orders only

The exit status is 1 if a promise is broken that no reason excuses. Seeds are printed; the same seed draws the same
faults, though the machine decides at which call of a process they come.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from redis import Redis

from spark_bull.core.embedded import EmbeddedRedis
from tests.proof.books import Cell
from tests.proof.faults import FAULTS, Fault
from tests.proof.histories import KINDS, first_found, violations
from tests.proof.orders import EveryOrder
from tests.proof.planted.errors import OF_HISTORIES
from tests.proof.producers import PRODUCERS
from tests.proof.protocols import PROTOCOLS, Protocol
from tests.proof.run import run

#: The lines of the README's table of guarantees.
TITLES = {
    "write": "`df.write`",
    "stream": "`df.writeStream`",
    "least": "`delivery=at-least-once`",
    "unique": "`deduplication` or `uniqueBy`",
    "flow": "a column `children`",
    "batch": "`onFinish`",
    "sequence": "`sequenceBy`",
    "ids": "a column `jobId`",
    "manage": "`mode=schedule`, `mode=manage`",
    "worker": "`Worker`",
    "most": "`Worker`, `delivery=at-most-once`",
    "results": "`spark.readStream`",
    "added": "the Redis connection",
}
VERSIONS = 4
HISTORIES = 20


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make faults", description="Prints which promises hold under faults.")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="a column; default: all")
    parser.add_argument("--promise", action="append", choices=TITLES, help="a row; default: all")
    parser.add_argument("--only", choices=["faults", "histories", "orders"], help="a part; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--versions", type=int, default=VERSIONS, help="micro-batches, and runs of each program")
    given = parser.parse_args(arguments)
    only = given.only or ("faults" if given.fault or given.promise else None)
    parts = [only] if only else ["faults", "histories", "orders"]
    # So that the processes under a fault are ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began, broken = time.monotonic(), []
    print(f"seed {given.seed}", flush=True)
    if "faults" in parts:
        chosen = [FAULTS[name] for name in given.fault or FAULTS]
        broken += _faults(chosen, given.promise or [*TITLES], given.seed, given.versions)
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client:
        if "histories" in parts:
            broken += _histories(client, given.seed)
        if "orders" in parts:
            broken += _orders(client, server.url)
    print(f"\n{(time.monotonic() - began) / 60:.0f} minutes")
    for line in broken:
        print(f"broken: {line}")
    return 1 if broken else 0


def _faults(faults: Sequence[Fault], promises: Sequence[str], seed: int, versions: int) -> Iterator[str]:
    """Prints a line per promise and a column per fault; yields broken cells, with the command that repeats them."""
    names = [name for name in PRODUCERS if name in promises]
    if {"worker", "results"} & {*promises}:
        names = names or ["write"]
    columns: dict[str, Mapping[str, Cell]] = {}
    for fault in faults:
        times, cells = run(fault, seed, versions, names)
        columns[fault.name] = cells
        shown = ", ".join(f"{name}: {cell}" for name, cell in cells.items() if any(cell))
        print(f"{fault.name}, {times} times: {shown or '0'}", file=sys.stderr, flush=True)
    print("\n| promise | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for promise in promises:
        print(f"| {TITLES[promise]} | " + " | ".join(str(cells[promise]) for cells in columns.values()) + " |")
    for fault in faults:
        if fault.inherent:
            print(f"\n{fault.name}: {fault.inherent}.")
    for fault in faults:
        for promise in promises if not fault.inherent else ():
            if columns[fault.name][promise].broken:
                again = ["--fault", fault.name, "--promise", promise, "--seed", str(seed), "--versions", str(versions)]
                yield f"{TITLES[promise]} under {fault.name}: python -m tests.proof.table {shlex.join(again)}"


def _histories(client: Redis, seed: int) -> Iterator[str]:
    """Prints how many histories have an order, and which planted errors were found; yields the others."""
    for workload, dialect in KINDS:
        for number in range(seed, seed + HISTORIES):
            for violation in violations(client, workload, number, dialect):
                yield f"history {number} of {workload}, {dialect}: {violation}"
    print(f"\n{HISTORIES * len(KINDS)} histories, seeds {seed} to {seed + HISTORIES - 1}\n")
    print("| planted error | found in history | as |\n|---|---|---|")
    for error in OF_HISTORIES:
        if found := first_found(client, error, first=0):
            print(f"| {error} | {found.history} | {found.violation.kind} |", flush=True)
        else:
            yield f"planted error not found: {error}"


def _orders(client: Redis, url: str) -> Iterator[str]:
    print("\n| protocol | orders of calls and deaths | states |\n|---|---|---|")
    for kind in PROTOCOLS:
        protocol = kind(client, url)
        orders = EveryOrder(client, protocol.begin)
        yield from wrong_orders(protocol, orders)
        print(f"| {kind.title} | {orders.count:,} | {orders.states:,} |", flush=True)


def wrong_orders(protocol: Protocol, orders: EveryOrder) -> Iterator[str]:
    """Tries all orders of a protocol; yields those after which something is wrong."""
    with protocol.changes():
        for order in orders.tried():
            if wrong := order.wrong or protocol.end(order):
                yield f"{protocol.title}: {wrong}: {', '.join(map(str, order.choices))}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
