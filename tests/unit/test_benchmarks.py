"""What a benchmark would not show itself: sides that do other work, verdicts and checks that pass silently."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from benchmarks.dispatch import TARGETS, Measured, verdicts
from benchmarks.floor import SIDES
from benchmarks.stock import stock_redis
from benchmarks.trials import BASE, check_all_completed, fresh_server
from benchmarks.workers import QUEUE
from spark_bull import BullQueue, EmbeddedRedis, NewJob
from spark_bull.core.embedded import COMPACT_SETTING
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

JOBS = 1_000


def test_writes_are_compared_with_the_faster_peer() -> None:
    def measured(rate: float, ping_p99: float, script: float) -> Measured:
        return Measured(JOBS / rate, 0.1, ping_p99, 9.0, script, 5.0, 0.9, 8.0)

    def broken(ours: float) -> list[str]:
        found = {
            "BullMQ addBulk, 1 process": measured(100, 2.0, 0.0),
            "BullMQ addBulk, 2 processes": measured(120, 4.0, 0.0),
        }
        for name in ("at-least-once, string", "exactly-once, string", "exactly-once, struct"):
            found[name] = measured(ours, 1.0, 2.0)
        return [verdict.what for verdict in verdicts(found, JOBS, yard_ms=10.0) if not verdict.kept]

    highest = TARGETS["at-least-once, string"]
    assert broken((highest + 0.1) * 120) == []
    assert broken((highest - 0.1) * 120) == ["at-least-once, string, x addBulk"]
    assert "at-least-once, string, x addBulk" in broken((highest + 0.1) * 100)


@pytest.mark.rest
@pytest.mark.parametrize("name", SIDES)
def test_a_write_and_its_bare_commands_add_the_same_jobs(name: str) -> None:
    with fresh_server() as server:
        SIDES[name][0](server.queue.handle, 500)()
        assert server.client.lrange(f"{BASE}wait", 0, -1) == [b"%d" % number for number in range(500, 0, -1)]
        assert server.client.xlen(f"{BASE}events") == (0 if "events" in name else 1_000)
        fields = server.client.hgetall(f"{BASE}500")
        assert {*fields} == {b"name", b"data", b"opts", b"timestamp", b"delay", b"priority"}
        assert len(fields[b"data"]) > 150


def test_servers_have_the_settings_of_redis_which_the_peers_have_too() -> None:
    with EmbeddedRedis() as ours, stock_redis() as stock, fresh_server() as fresh:
        changed = {name for name, value in settings(ours.url).items() if settings(stock.url)[name] != value}
        assert settings(stock.url)[COMPACT_SETTING] == settings(fresh.url)[COMPACT_SETTING] == "64"
    # Redis knows the setting by one name, later servers by two.
    assert changed - {"hash-max-listpack-value"} == {COMPACT_SETTING, "port", "dir"}
    modules = Path(stock_redis.__code__.co_filename).parent.glob("*.py")
    assert [module.name for module in modules if "EmbeddedRedis(" in module.read_text()] == ["stock.py"]


def settings(url: str) -> dict[str, str]:
    with Redis.from_url(url, decode_responses=True) as client:
        return dict(client.config_get("*"))


@contextmanager
def clock(url: str, processor: Callable[[Any], Any] = lambda job: time.monotonic_ns() / 1e6) -> Iterator[None]:
    """One of our slots in a thread."""
    with BullQueue(QUEUE, url=url, protocol="bullmq") as queue, OurWorker(queue.handle, processor, chunk_size=100):
        yield


def test_the_final_state_of_a_run_is_checked() -> None:
    with fresh_server() as server, Redis.from_url(server.url) as client:
        with clock(server.url):
            server.queue.add_many(NewJob({"n": n}) for n in range(10))
            wait_until(lambda: server.queue.counts()["completed"] == 10, "all jobs to complete")
        check_all_completed(client, range(1, 11))
        for said, *broken in (
            ("has no returnvalue", "HDEL", f"{BASE}7", "returnvalue"),
            ("has no finishedOn", "HDEL", f"{BASE}7", "finishedOn"),
            ("expected 10 completed jobs, got 9", "ZREM", f"{BASE}completed", "7"),
            ("0 failed jobs, got 1", "ZADD", f"{BASE}failed", "1", "7"),
            ("no active job", "LPUSH", f"{BASE}active", "7"),
            ("no wait job", "LPUSH", f"{BASE}wait", "7"),
            ("no lock", "SET", f"{BASE}7:lock", "x"),
        ):
            key = broken[1]
            before = client.dump(key)
            client.execute_command(*broken)
            with pytest.raises(AssertionError, match=said):
                check_all_completed(client, range(1, 11))
            client.delete(key)
            if before:
                client.restore(key, 0, before)


def test_the_cpu_time_of_a_process_counts_whose_parent_has_ended() -> None:
    work = "import time\nwhile time.process_time() < 0.3: pass"
    # The child starts a worker in a session of its own, and ends before it.
    starts = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {work!r}], start_new_session=True)"
    program = (
        "import os, subprocess, sys\n"
        "from benchmarks.probes import adopt_orphans, cpu_of, descendants\n"
        "adopt_orphans()\n"
        f"subprocess.run([sys.executable, '-c', {starts!r}], check=True)\n"
        "(orphan,) = descendants(os.getpid())\n"
        "os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)\n"
        "both, own = cpu_of(os.getpid()).python, sum(os.times()[:4])\n"
        "os.waitpid(orphan, 0)\n"
        "assert both > own + 0.2 and orphan not in descendants(os.getpid())\n"
        "print('counted')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout == "counted\n", done.stderr
