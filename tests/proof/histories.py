"""Runs histories by their seeds, with the scripts of the package or with a planted error, and checks them."""

from __future__ import annotations

from typing import NamedTuple

from redis import Redis

from tests.proof.altered_scripts import MOVABLE_CLOCK, Alteration, altered_scripts
from tests.proof.history import Violation, check_work, check_writes
from tests.proof.mutants import Mutant, Workload
from tests.proof.work_history import work_history
from tests.proof.write_history import write_history

#: A mutant must be found within so many histories.
MOST_SEEDS = 60

#: What histories are of, and their dialects.
KINDS: tuple[tuple[Workload, str], ...] = (
    ("writes", "bull"),
    ("writes", "bullmq"),
    ("work", "bull-1"),
    ("work", "bull"),
    ("work", "bullmq"),
)

_WORKLOADS = {"writes": (write_history, check_writes), "work": (work_history, check_work)}


class Found(NamedTuple):
    """The first history that shows an error, and what is wrong in it."""

    seed: int
    violation: Violation


def violations(
    client: Redis, workload: Workload, seed: int, dialect: str = "bullmq", *alterations: Alteration
) -> list[Violation]:
    """Runs one history on a server of its own, and returns what no order explains."""
    run, check = _WORKLOADS[workload]
    client.flushall()
    address = client.connection_pool.connection_kwargs
    with altered_scripts(MOVABLE_CLOCK, *alterations):
        return check(run(client, f"redis://{address['host']}:{address['port']}/0", "proof", seed, dialect))


def first_found(client: Redis, mutant: Mutant, first: int = 0) -> Found | None:
    """The first history, from this seed on, that shows a planted error."""
    for seed in range(first, first + MOST_SEEDS):
        if found := violations(client, mutant.workload, seed, "bullmq", mutant.alteration):
            return Found(seed, found[0])
    return None
