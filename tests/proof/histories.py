"""Runs histories by their seeds, with the scripts of the package or with a planted error, and checks them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from redis import Redis

from spark_bull.core.store import scripts
from tests.proof.history import CLOCK, Violation, check_work, check_writes
from tests.proof.planted.errors import Planted
from tests.proof.work_history import work_history
from tests.proof.write_history import write_history

#: Maximum number of histories until a planted error is found.
MOST_SEEDS = 60

#: What histories are of, and their dialects.
KINDS = (("writes", "bull"), ("writes", "bullmq"), ("work", "bull-1"), ("work", "bull"), ("work", "bullmq"))

_WORKLOADS = {"writes": (write_history, check_writes), "work": (work_history, check_work)}
_LUA = "core/lua/"
_MOVABLE_CLOCK = Planted(
    "a test can move the clock of Redis",
    f"{_LUA}lib/values.lua",
    "return now[1] * 1000 + math.floor(now[2] / 1000)",
    f"return now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(redis.call('GET', '{CLOCK}') or 0)",
    "",
)


class Found(NamedTuple):
    """The first history that shows an error, and what is wrong in it."""

    history: str
    violation: Violation


@contextmanager
def altered_scripts(*errors: Planted) -> Iterator[None]:
    """Within the block, this process runs the scripts with these errors."""
    read = scripts._read_packaged
    files = {one.file.removeprefix(_LUA): one for one in errors}
    texts = {file: one.planted(read(file)) for file, one in files.items()}
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scripts, "_read_packaged", lambda file: texts.get(file) or read(file))
            scripts.load.cache_clear()
            yield
    finally:
        scripts.load.cache_clear()


def violations(client: Redis, workload: str, seed: int, dialect: str = "bullmq", *errors: Planted) -> list[Violation]:
    """Runs one history on a server of its own, and returns what no order explains."""
    run, check = _WORKLOADS[workload]
    client.flushall()
    address = client.connection_pool.connection_kwargs
    with altered_scripts(_MOVABLE_CLOCK, *errors):
        return check(run(client, f"redis://{address['host']}:{address['port']}/0", "proof", seed, dialect))


def first_found(client: Redis, error: Planted, first: int | None = None) -> Found | None:
    """The first history that shows a planted error, from a seed on, by default the one that is known to show it."""
    workload, known = error.finder.split()
    first = int(known) if first is None else first
    for seed in range(first, first + MOST_SEEDS):
        if found := violations(client, workload, seed, "bullmq", error):
            return Found(f"{seed} of {workload}", found[0])
    return None
