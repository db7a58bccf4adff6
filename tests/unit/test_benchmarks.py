"""The computations and probes of the benchmarks; `make bench` runs the benchmarks themselves."""

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

from benchmarks.calling import BULLMQ, OURS
from benchmarks.calling import Called as CalledRows
from benchmarks.calling import medians as calling_medians
from benchmarks.calling import verdicts as calling_verdicts
from benchmarks.compact import LIMITS
from benchmarks.compact import measured as compact_costs
from benchmarks.costs import line_of
from benchmarks.dispatch import Measured, verdicts
from benchmarks.floor import SIDES
from benchmarks.floor_work import PAIRS
from benchmarks.probes import cpu_of
from benchmarks.process import (
    medians,
    throughput_verdicts,
)
from benchmarks.replay import replay
from benchmarks.report import Verdict, percentile
from benchmarks.scale import on_servers
from benchmarks.sides import shares
from benchmarks.stock import stock_redis
from benchmarks.trials import (
    BASE,
    Waited,
    cancel_latency,
    check_all_completed,
    fresh_server,
    idle_latency,
    lateness,
    load_latency,
    promotion,
    tenants,
    throughput,
    work_scripts,
    yardstick,
)
from benchmarks.workers import QUEUE, Working, peers
from spark_bull import BullQueue, EmbeddedRedis, NewJob
from spark_bull.dialects.encode.chunks import ChunkBuilder
from spark_bull.dialects.encode.codec import encode
from spark_bull.dialects.registry import DIALECTS
from spark_bull.embedded.redis import COMPACT_SETTING
from spark_bull.model.group_limits import GroupLimits
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker

JOBS = 1_000


def measured(rate: float, ping_p99: float = 1.0, script: float = 2.0, share: float = 0.9) -> Measured:
    return Measured(JOBS / rate, 0.1, ping_p99, 9.0, script, 5.0, share, 8.0)


def found(ours: float, ping_p99: float = 1.0, script: float = 2.0, share: float = 0.9) -> dict[str, Measured]:
    names = ("at-least-once, string", "exactly-once, string", "exactly-once, struct")
    return {
        "BullMQ addBulk, 1 process": measured(100, 2.0, 0.0),
        "BullMQ addBulk, 2 processes": measured(120, 4.0, 0.0),
        **{name: measured(ours, ping_p99, script, share) for name in names},
    }


def broken(results: dict[str, Measured]) -> list[str]:
    return [verdict.what for verdict in verdicts(results, JOBS, yard_ms=10.0) if not verdict.kept]


def test_four_times_the_rate_of_the_faster_peer_passes_all_checks() -> None:
    assert broken(found(ours=4 * 120)) == []


def test_rates_are_compared_with_the_faster_peer() -> None:
    assert broken(found(ours=3.9 * 120)) == ["exactly-once, string, x addBulk"]
    assert "at-least-once, string, x addBulk" in broken(found(ours=4 * 100))


@pytest.mark.parametrize("name", SIDES)
def test_a_write_and_its_bare_commands_add_the_same_jobs(name: str) -> None:
    with fresh_server() as server:
        SIDES[name][0](server.queue.handle, 500)()
        assert server.client.lrange(f"{BASE}wait", 0, -1) == [b"%d" % number for number in range(500, 0, -1)]
        with_events = "events" not in name
        assert server.client.xlen(f"{BASE}events") == (1_000 if with_events else 0)
        fields = server.client.hgetall(f"{BASE}500")
        assert {*fields} == {b"name", b"data", b"opts", b"timestamp", b"delay", b"priority"}
        assert len(fields[b"data"]) > 150


@pytest.mark.parametrize("name", PAIRS)
def test_the_scripts_of_a_worker_and_their_bare_commands_settle_the_same_jobs(name: str) -> None:
    fields, events = [], []
    for side in PAIRS[name]:
        with fresh_server() as server:
            side(server.queue.handle, 400)()
            assert server.queue.counts()["completed"] == 400
            fields.append({*server.client.hgetall(f"{BASE}400")})
            events.append(server.client.xlen(f"{BASE}events"))
            assert not server.client.exists(f"{BASE}active", f"{BASE}wait", f"{BASE}400:lock")
    assert fields[0] == fields[1]
    # The event `drained` at the end.
    assert events[0] - events[1] == ("events" not in name)


def test_the_commit_of_a_write_is_replayed_on_its_packed_chunks() -> None:
    builder = ChunkBuilder(chunk_size=50, chunk_bytes=1 << 20)
    jobs = encode(DIALECTS["bullmq"], {"data": ["{}"] * 120}, {}, range(120))
    replayed = replay([*builder.add(jobs), *builder.flush()])
    assert replayed.seconds > 0
    assert replayed.server_us_per_job > 0


@pytest.mark.parametrize(("jobs", "processes", "expected"), [(10, 1, [10]), (10, 2, [5, 5]), (11, 2, [5, 6])])
def test_jobs_are_divided_among_processes(jobs: int, processes: int, expected: list[int]) -> None:
    assert shares(jobs, processes) == expected


def test_cpu_time_includes_python_child_processes_that_have_ended() -> None:
    works = "import time\nwhile time.process_time() < 0.3: pass"
    start_child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {works!r}], check=True); input()"
    with subprocess.Popen([sys.executable, "-c", start_child], stdin=subprocess.PIPE, text=True) as parent:
        wait_until(lambda: cpu_of(parent.pid).python >= 0.3, "the CPU time of the child to be seen")
        assert cpu_of(parent.pid).jvm == 0
        parent.communicate("\n", timeout=PATIENCE_S)
    assert parent.returncode == 0


# process


def waited(p50: float, p99: float) -> Waited:
    return Waited(p50, p99, p99)


def not_kept(verdicts: list[Verdict]) -> list[str]:
    return [verdict.what for verdict in verdicts if not verdict.kept]


def test_medians_are_taken_by_side_and_field() -> None:
    runs = {"a": [waited(1, 9), waited(3, 5), waited(2, 7)], "b": [waited(4, 8)]}
    assert medians(runs) == {"a": Waited(2, 7, 7), "b": Waited(4, 8, 8)}


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (99, 99), (99.5, 100), (100, 100), (0, 1)])
def test_a_percentile_is_one_of_the_values(percent: float, expected: int) -> None:
    assert percentile([*range(100, 0, -1)], percent) == expected


def test_rates_are_compared_with_the_fastest_bullmq_only() -> None:
    rates = {"BullMQ, 1 x 10": 100.0, "BullMQ, 2 x 50": 200.0, "Bull, 1 x 50": 900.0, "Python bullmq, 2 x 50": 900.0}
    ours = {"loop, function": 700.0, "loop, pandas UDF": 799.0, "stream": 500.0}
    assert not_kept(throughput_verdicts(rates | ours)) == ["loop, pandas UDF, x best BullMQ"]
    assert not_kept(throughput_verdicts(rates | ours | {"stream": 499.0}))[1:] == ["stream, x best BullMQ"]


@contextmanager
def without_spark(url: str, processor: Callable[[Any], Any]) -> Iterator[None]:
    """One of our slots in a thread."""
    with BullQueue(QUEUE, url=url, protocol="bullmq") as queue, OurWorker(queue.handle, processor, chunk_size=100):
        yield


def no_op(url: str) -> Any:
    return without_spark(url, lambda job: None)


def clock(url: str) -> Any:
    return without_spark(url, lambda job: time.monotonic_ns() / 1e6)


def test_servers_have_the_settings_of_redis_which_the_peers_have_too() -> None:
    with EmbeddedRedis() as ours, stock_redis() as stock, fresh_server() as fresh:
        changed = {name for name, value in settings(ours.url).items() if settings(stock.url)[name] != value}
        assert settings(stock.url)[COMPACT_SETTING] == settings(fresh.url)[COMPACT_SETTING] == "64"
    assert changed == {COMPACT_SETTING, "port", "dir"}
    modules = Path(stock_redis.__code__.co_filename).parent.glob("*.py")
    assert [module.name for module in modules if "EmbeddedRedis(" in module.read_text()] == ["stock.py"]


def settings(url: str) -> dict[str, str]:
    with Redis.from_url(url, decode_responses=True) as client:
        return dict(client.config_get("*"))


def test_a_longer_limit_saves_memory_where_payloads_are_longer_than_the_default() -> None:
    short, long = (compact_costs(limit, 200, 500) for limit in LIMITS)
    assert (long.waiting, long.completed) < (short.waiting, short.completed)
    assert min(long.dispatch_us, long.process_us, long.collect_us) > 0


@pytest.mark.interop
@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(("program", "protocol"), [("bullmq_process.js", "bullmq"), ("bull_process.js", "bull")])
def test_node_peers_are_measured_on_the_same_queue(program: str, protocol: str) -> None:
    assert throughput(peers(program, 2, 10), 300, protocol, warm_up=100).seconds > 0


@pytest.mark.interop
@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("working", [clock, peers("bullmq_process.js", 1, 1, "clock")], ids=["ours", "bullmq"])
def test_idle_latency_is_measured_between_two_processes(working: Working) -> None:
    found = idle_latency(working, 10)
    assert 0 < found.p50 <= found.p99 == found.longest


@pytest.mark.interop
@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("working", [clock, peers("bullmq_process.js", 1, 10, "clock")], ids=["ours", "bullmq"])
def test_latency_under_load_is_that_of_the_jobs_after_the_first_seconds(working: Working) -> None:
    found = load_latency(working, 50, 1)
    assert 0 < found.p50 <= found.p99 == found.longest
    assert 0 < found.per_second <= 51


@pytest.mark.interop
@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("working", [clock, peers("bullmq_process.js", 1, 10, "clock")], ids=["ours", "bullmq"])
def test_no_job_runs_before_it_is_due(working: Working) -> None:
    found = lateness(working, 20, 100, ahead_ms=8_000)
    assert 0 < found.p50 <= found.p99 == found.longest


@pytest.mark.parametrize("protocol", ["bullmq", "bull"])
def test_a_small_tenant_is_measured_while_the_big_one_has_jobs_left(protocol: str) -> None:
    def brief(_job: Any) -> float:
        time.sleep(0.02)
        return time.monotonic_ns() / 1e6

    @contextmanager
    def working(url: str) -> Iterator[None]:
        with (
            BullQueue(QUEUE, url=url, protocol=protocol) as queue,
            OurWorker(queue.handle, brief, concurrency=3, group=GroupLimits("tenant", concurrency=1)),
        ):
            yield

    found = tenants(working, 3, 3_000, protocol)
    assert 20 <= found.p50 <= found.p99 == found.longest
    assert found.first >= 20


def test_the_latency_of_a_cancellation_is_that_until_the_function_ends() -> None:
    def until_cancelled(job: Any) -> None:
        Path(job.data["started"]).touch()
        try:
            while True:
                time.sleep(0.001)
        finally:
            Path(job.data["ended"]).write_text(str(time.monotonic_ns()))

    @contextmanager
    def working(url: str) -> Iterator[None]:
        with (
            BullQueue(QUEUE, url=url, protocol="bullmq") as queue,
            OurWorker(queue.handle, until_cancelled, concurrency=2),
        ):
            yield

    found = cancel_latency(working, 2)
    assert 0 < found.p50 <= found.p99 == found.longest


@pytest.mark.parametrize("protocol", [dialect.name for dialect in DIALECTS.values()])
def test_replayed_scripts_work_off_the_queue_in_chunks(protocol: str) -> None:
    run = work_scripts(protocol, 250, 100)
    assert run.seconds > 0
    assert run.server_us_per_job > 0


def test_promotion_is_done_when_all_jobs_wait_in_their_order() -> None:
    assert promotion(5_000).seconds > 0


def test_the_yardstick_script_is_measured_by_redis() -> None:
    run = yardstick()
    assert 0 < run.script_p50_ms <= run.script_longest_ms
    assert run.server_us_per_job > 0


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (("SET", f"{BASE}7:lock", "x"), "no lock"),
        (("HDEL", f"{BASE}7", "returnvalue"), "has no returnvalue"),
        (("HDEL", f"{BASE}7", "finishedOn"), "has no finishedOn"),
        (("ZREM", f"{BASE}completed", "7"), "expected 10 completed jobs, got 9"),
        (("ZADD", f"{BASE}failed", "1", "7"), "0 failed jobs, got 1"),
        (("LPUSH", f"{BASE}active", "7"), "no active job"),
        (("LPUSH", f"{BASE}wait", "7"), "no wait job"),
    ],
)
def test_the_final_state_of_a_run_is_checked(break_it: tuple[str, ...], said: str) -> None:
    with fresh_server() as server:
        with no_op(server.url):
            server.queue.add_many(NewJob({"n": n}) for n in range(10))
            wait_until(lambda: server.queue.counts()["completed"] == 10, "all jobs to complete")
        check_all_completed(server.client, range(1, 11))
        server.client.execute_command(*break_it)
        with pytest.raises(AssertionError, match=said):
            check_all_completed(server.client, range(1, 11))


def test_calls_must_be_faster_than_those_of_bullmq_and_take_no_more_of_redis() -> None:
    peer = CalledRows(8_000, 60.0)
    assert not_kept(calling_verdicts({OURS: CalledRows(10_000, 60.0), BULLMQ: peer})) == []
    slow = calling_medians([CalledRows(9_999, 61.0), CalledRows(1, 99.0), CalledRows(20_000, 1.0)])
    assert not_kept(calling_verdicts({OURS: slow, BULLMQ: peer})) == [
        "jobs/s, call / BullMQ",
        "Redis' CPU per job, call / BullMQ",
    ]


# scale


def test_a_line_goes_through_the_costs_of_three_payloads() -> None:
    line = line_of({payload: 7 + payload / 500 for payload in (200, 1_000, 5_000)})
    assert (line.base, line.per_kb) == (pytest.approx(7), pytest.approx(2))
    assert line_of({200: 5.0, 1_000: 5.0, 5_000: 5.0}).per_kb == pytest.approx(0)


def test_jobs_on_several_servers_are_measured_together() -> None:
    found = on_servers(2, 300)
    assert found.redis_us > 0
    assert found.per_second > 0


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
