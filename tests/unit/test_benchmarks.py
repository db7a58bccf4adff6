"""What the benchmarks compute, and what their probes see; they themselves are run by `make bench`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from redis import Redis

from benchmarks.dispatch import Measured, median_of, verdicts
from benchmarks.probes import Memory, memory_watched, pinged
from benchmarks.sides import shares
from spark_bull import EmbeddedRedis

JOBS = 1_000


def measured(rate: float, ping_p99: float = 1.0, script: float = 2.0) -> Measured:
    return Measured(JOBS / rate, 0.1, ping_p99, 9.0, script, 5.0)


def found(ours: float, ping_p99: float = 1.0, script: float = 2.0) -> dict[str, Measured]:
    names = ("at-least-once, string", "exactly-once, string", "exactly-once, struct")
    return {
        "BullMQ addBulk, 1 process": measured(100, 2.0, 0.0),
        "BullMQ addBulk, 2 processes": measured(120, 4.0, 0.0),
        **{name: measured(ours, ping_p99, script) for name in names},
    }


def broken(results: dict[str, Measured]) -> list[str]:
    return [verdict.what for verdict in verdicts(results, JOBS) if not verdict.kept]


def test_the_median_of_runs_is_taken_number_by_number() -> None:
    runs = [Measured(1.0, 1.0, 9.0, 9.0, 2.0, 5.0), Measured(3.0, 2.0, 7.0, 9.0, 2.0, 6.0)]
    assert median_of([*runs, Measured(2.0, 3.0, 8.0, 9.0, 2.0, 7.0)]) == Measured(2.0, 2.0, 8.0, 9.0, 2.0, 6.0)


def test_all_promises_are_kept_at_four_times_the_better_peer() -> None:
    assert broken(found(ours=4 * 120)) == []


def test_the_better_peer_counts() -> None:
    assert broken(found(ours=4 * 100)) == ["at-least-once, string, x addBulk"]


def test_a_ping_slower_than_under_one_peer_is_told() -> None:
    late = broken(found(ours=500, ping_p99=3.0))
    assert len(late) == 3
    assert all(what.endswith("1 process") for what in late)


def test_a_script_that_blocks_too_long_is_told() -> None:
    assert broken(found(ours=500, script=11.0)) == ["script, median ms"]


@pytest.mark.parametrize(("jobs", "processes", "expected"), [(10, 1, [10]), (10, 2, [5, 5]), (11, 2, [5, 6])])
def test_processes_share_all_jobs(jobs: int, processes: int, expected: list[int]) -> None:
    assert shares(jobs, processes) == expected


def test_the_prober_notices_a_server_that_is_busy() -> None:
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client, pinged(server.port) as pings:
        client.execute_command("DEBUG", "SLEEP", "0.2")
    assert pings.count > 0
    assert pings.p50 <= pings.p99 <= pings.longest
    assert pings.longest >= 190


def test_memory_counts_the_python_processes_below() -> None:
    alone = most_memory_below("import time; time.sleep(1)")
    holding = most_memory_below("held = bytearray(60 << 20); import time; time.sleep(1)")
    assert holding.python >= alone.python + 50
    assert holding.jvm == 0


def most_memory_below(program: str) -> Memory:
    """The memory of a process' child. A process of its own, as whoever runs the tests may have a JVM below."""
    start_child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}], check=True)"
    with subprocess.Popen([sys.executable, "-c", start_child]) as parent, memory_watched(parent.pid) as memory:
        assert parent.wait(30) == 0
    return memory
