"""Trials of workers on fresh servers: throughput, latencies, tenants that share a queue, promotion."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from redis import Redis

from benchmarks.filling import due, of_tenant, overdue, passing, pending, plain, queue_at
from benchmarks.report import percentile
from benchmarks.sides import timed
from benchmarks.stock import stock_redis
from benchmarks.workers import PEERS, QUEUE, Working, peer_process
from spark_bull import BullQueue, Promoter
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.options.parts import ALL_EVENTS
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import work
from spark_bull.run.slot.termination import READ_S

BASE = f"bull:{QUEUE}:"
#: Records the scripts of chunks, and few other commands (µs).
SLOWLOG = {"slowlog-log-slower-than": "200", "slowlog-max-len": "100000"}
POLL_S = 0.01
TIMEOUT_S = 300.0
#: Least rate of workers, jobs/s: they may take longer than TIMEOUT_S for many jobs.
LEAST_RATE = 1_000
WARM_UP_JOBS = 10_000
#: Number of first jobs that are not counted.
WARM_UP_PINGS = 50
GAP_MS = (5, 55)
#: Time at a constant rate whose jobs are not counted.
LOAD_WARM_UP_S = 3
#: Jobs due per second, and the time from adding them until the first one is due.
DUE_RATE = 500
DUE_AHEAD_MS = 2_000
BIG_TENANT, SMALL_TENANT = "big", "small"
#: Interval at which the small tenant adds jobs.
TENANT_GAP_S = 0.05
#: The reference script: plain commands that take about 10 ms on an idle machine. No script should block longer.
YARDSTICK = """
for i = 1, tonumber(ARGV[1]) do
  redis.call('HSET', KEYS[1], i % 1000, ARGV[2])
end
"""
YARDSTICK_COMMANDS, YARDSTICK_RUNS = 10_000, 50
#: Fields that only a finished job has.
FINISHED = ("returnvalue", "finishedOn", "processedOn")


@dataclass(frozen=True)
class Processed:
    """seconds: until the last job is done. Script times are from the slow log of Redis; 0 if it has none."""

    seconds: float
    server_us_per_job: float
    script_p50_ms: float
    script_longest_ms: float


@dataclass(frozen=True)
class Waited:
    """Latencies, ms."""

    p50: float
    p99: float
    longest: float


@dataclass(frozen=True)
class Loaded(Waited):
    """Latencies at a constant rate. per_second: jobs that were added in a second."""

    per_second: float


@dataclass(frozen=True)
class Shared(Waited):
    """Latencies of a tenant. first: of the job that was added right behind the backlog of another tenant, ms."""

    first: float


@dataclass(frozen=True)
class Server:
    """A fresh server with QUEUE."""

    url: str
    client: Redis
    queue: BullQueue

    @property
    def port(self) -> int:
        return int(self.client.connection_pool.connection_kwargs["port"])


@contextmanager
def fresh_server(protocol: str = "bullmq") -> Iterator[Server]:
    with (
        stock_redis(SLOWLOG) as server,
        Redis.from_url(server.url) as client,
        queue_at(server.url, protocol) as queue,
    ):
        yield Server(server.url, client, queue)


def throughput(working: Working, jobs: int, protocol: str = "bullmq", warm_up: int = WARM_UP_JOBS) -> Processed:
    """Measures connected and warmed-up workers on a queue that is filled while paused, then resumed."""
    with fresh_server(protocol) as server:
        with working(server.url):
            server.queue.add_many(passing(warm_up))
            wait_until(lambda: not any(server.queue.counts().values()))
            server.queue.pause()
            server.queue.add_many(plain(jobs))
            server.client.slowlog_reset()
            cpu = cpu_seconds(server.client)
            started = time.perf_counter()
            resume_and_wait(server, jobs)
            seconds = time.perf_counter() - started
            server_us = (cpu_seconds(server.client) - cpu) / jobs * 1e6
        check_all_completed(server.client, range(warm_up + 1, warm_up + jobs + 1))
        return Processed(seconds, server_us, *script_ms(server.client))


def idle_latency(working: Working, samples: int) -> Waited:
    """Measures the latency from add() in Node to the processor's first line, for single jobs at random times."""
    jobs = WARM_UP_PINGS + samples
    with fresh_server() as server:
        command = ["node", str(PEERS / "bullmq_add_now_and_then.js"), server.url, QUEUE, str(jobs), *map(str, GAP_MS)]
        with working(server.url), peer_process(command) as adder:
            adder.expect("ready")
            adder.send("go")
            adder.expect("done")
            wait_until(lambda: completed(server.client) >= jobs)
        check_all_completed(server.client, range(1, jobs + 1))
        return _waited(server.client, range(WARM_UP_PINGS + 1, jobs + 1))


def load_latency(working: Working, per_second: int, seconds: int) -> Loaded:
    """Measures the latency from add() in Node to the processor's first line while jobs are added at a constant rate."""
    warm_up, jobs = per_second * LOAD_WARM_UP_S, per_second * (LOAD_WARM_UP_S + seconds)
    with fresh_server() as server:
        command = ["node", str(PEERS / "bullmq_add_steadily.js"), server.url, QUEUE, str(per_second), str(jobs)]
        with working(server.url), peer_process(command) as adder:
            adder.expect("ready")
            started = time.perf_counter()
            adder.send("go")
            adder.expect("done")
            lasted = time.perf_counter() - started
            wait_until(lambda: completed(server.client) >= jobs)
        check_all_completed(server.client, range(1, jobs + 1))
        waited = _waited(server.client, range(warm_up + 1, jobs + 1))
        return Loaded(**asdict(waited), per_second=jobs / lasted)


def lateness(working: Working, jobs: int, others: int, ahead_ms: int = DUE_AHEAD_MS) -> Waited:
    """Measures the latency from a job's due time to the processor's first line, with many other delayed jobs."""
    with fresh_server() as server:
        server.queue.add_many(pending(others))
        with working(server.url):
            offset_ms = (time.monotonic_ns() - time.time_ns()) / 1e6
            first = time.time_ns() // 1_000_000 + ahead_ms
            server.queue.add_many(due((first + i * 1_000 // DUE_RATE for i in range(jobs)), offset_ms))
            assert time.time_ns() // 1_000_000 < first, "expected all jobs to be added before the first one is due"
            wait_until(lambda: completed(server.client) >= jobs)
        ids = range(others + 1, others + jobs + 1)
        check_all_completed(server.client, ids, still_delayed=others)
        return _waited(server.client, ids)


def tenants(working: Working, samples: int, backlog: int, protocol: str = "bullmq") -> Shared:
    """Measures the latency from add() to the end of the jobs of one tenant, with a backlog of another one."""
    with fresh_server(protocol) as server:
        server.queue.pause()
        server.queue.add_many(of_tenant(BIG_TENANT, backlog))
        with working(server.url):
            server.queue.resume()
            first = _add_now(server.queue)
            wait_until(lambda: server.client.hexists(f"{BASE}{first}", "finishedOn"))
            began, ids = time.monotonic(), []
            for number in range(samples):
                time.sleep(max(0.0, began + number * TENANT_GAP_S - time.monotonic()))
                ids.append(_add_now(server.queue))
            wait_until(lambda: server.client.hexists(f"{BASE}{ids[-1]}", "finishedOn"))
            wait_until(lambda: all(value for _, (value,) in _fields(server.client, ids, ("finishedOn",))))
            left = sum(server.queue.counts()[state] for state in ("wait", "delayed"))
            assert left or not backlog, "expected the backlog to last until the last job of the other tenant has ended"
        return Shared(**asdict(_waited(server.client, ids)), first=_waited(server.client, [first]).longest)


def cancel_latency(working: Working, samples: int) -> Waited:
    """Measures the latency from cancel() to the end of the function, which the cancelled job interrupts."""
    pauses, times = Random(0), []
    with fresh_server() as server, TemporaryDirectory() as folder, working(server.url):
        for number in range(samples):
            started, ended = Path(folder) / f"{number} started", Path(folder) / f"{number} ended"
            job_id = server.queue.add({"started": str(started), "ended": str(ended)})
            wait_until(started.exists)
            time.sleep(pauses.uniform(0, READ_S))
            began = time.monotonic_ns()
            server.queue.cancel(job_id)
            wait_until(lambda ended=ended: ended.exists() and ended.read_text() != "")  # type: ignore[misc]
            times.append((int(ended.read_text()) - began) / 1e6)
            wait_until(lambda count=number + 1: server.client.zcard(f"{BASE}failed") == count)  # type: ignore[misc]
    return Waited(percentile(times, 50), percentile(times, 99), max(times))


def work_scripts(protocol: str, jobs: int, chunk: int, events: str = ALL_EVENTS) -> Processed:
    """Measures the scripts that claim and settle, called by one client, until all jobs have completed.

    events: those that they cause.
    """
    with fresh_server(protocol) as server:
        server.queue.add_many(plain(jobs))
        server.client.slowlog_reset()
        cpu = cpu_seconds(server.client)
        seconds = timed(lambda: work_off(replace(server.queue.handle, events=events), chunk))
        server_us = (cpu_seconds(server.client) - cpu) / jobs * 1e6
        counts = server.queue.counts()
        assert counts["completed"] == jobs == sum(counts.values()), f"expected {jobs} completed jobs, got {counts}"
        return Processed(seconds, server_us, *script_ms(server.client))


def work_off(handle: QueueHandle, chunk: int) -> None:
    settings = WorkSettings(sender="replay", worker="spark-replay")
    claim = work(handle, settings, None, chunk)
    while claim.jobs:
        outcomes = Outcomes(claim.token)
        for job in claim.jobs:
            outcomes.complete(job.id, "null")
        claim = work(handle, settings, outcomes, chunk)


def promotion(jobs: int) -> Processed:
    """Measures a Promoter from its start until all jobs, which are due at the same time, are promoted."""
    with fresh_server() as server:
        server.queue.add_many(overdue(jobs, time.time_ns() // 1_000_000 - 60_000))
        assert server.queue.counts()["delayed"] == jobs
        server.client.slowlog_reset()
        cpu = cpu_seconds(server.client)
        started = time.perf_counter()
        with Promoter(server.url, queues=[QUEUE]):
            wait_until(lambda: not server.client.zcard(f"{BASE}delayed"))
            seconds = time.perf_counter() - started
        server_us = (cpu_seconds(server.client) - cpu) / jobs * 1e6
        check_all_wait(server.client, jobs)
        return Processed(seconds, server_us, *script_ms(server.client))


def yardstick() -> Processed:
    """Measures the reference script, which runs plain commands; each command counts as a job."""
    with fresh_server() as server:
        cpu = cpu_seconds(server.client)
        seconds = timed(lambda: run_yardstick(server.client))
        server_us = (cpu_seconds(server.client) - cpu) / (YARDSTICK_RUNS * YARDSTICK_COMMANDS) * 1e6
        return Processed(seconds, server_us, *script_ms(server.client))


def run_yardstick(client: Redis) -> None:
    script = client.register_script(YARDSTICK)
    for _ in range(YARDSTICK_RUNS):
        script(keys=["yardstick"], args=[YARDSTICK_COMMANDS, "x" * 200])


def wait_until(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"expected the measurement to end within {timeout_s:g} s"
        time.sleep(POLL_S)


def resume_and_wait(server: Server, jobs: int) -> None:
    """Resumes the queue, and waits until this number of jobs have completed."""
    server.queue.resume()
    wait_until(lambda: completed(server.client) >= jobs, max(TIMEOUT_S, jobs / LEAST_RATE))


def completed(client: Redis) -> int:
    return int(client.zcard(f"{BASE}completed"))


def cpu_seconds(client: Redis) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


def script_seconds(client: Redis) -> float:
    """Returns the time that Redis has spent in scripts."""
    stats = client.info("commandstats")
    return sum(float(stats.get(f"cmdstat_{name}", {"usec": 0})["usec"]) for name in ("eval", "evalsha")) / 1e6


def script_ms(client: Redis) -> tuple[float, float]:
    """Returns median and maximum duration of the scripts in the slow log, ms."""
    times = [entry["duration"] / 1000 for entry in client.slowlog_get(100_000) if is_script(entry)] or [0.0]
    return percentile(times, 50), max(times)


def is_script(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of the slow log is a script."""
    return bool(entry["command"].upper().startswith(b"EVAL"))


def check_all_completed(client: Redis, ids: range, still_delayed: int = 0) -> None:
    """Checks that these jobs completed with all fields, that no other job is waiting or active, and no lock is left."""
    found = {int(job_id) for job_id in client.execute_command("ZRANGE", f"{BASE}completed", 0, -1)}
    assert found == set(ids), f"expected {len(ids)} completed jobs, got {len(found)}"
    for kind, count in (("delayed", still_delayed), ("failed", 0), ("prioritized", 0)):
        assert client.zcard(BASE + kind) == count, f"expected {count} {kind} jobs, got {client.zcard(BASE + kind)}"
    for kind in ("wait", "active", "paused"):
        assert not client.llen(BASE + kind), f"expected no {kind} job, got {client.lrange(BASE + kind, 0, 9)}"
    for job_id, fields in _fields(client, ids, FINISHED):
        missing = [name for name, value in zip(FINISHED, fields, strict=True) if value is None]
        assert not missing, f"expected job {job_id} to have finished, it has no {', '.join(missing)}"
    locks = list(client.scan_iter(f"{BASE}*:lock", count=10_000))
    assert not locks, f"expected no lock to be left, got {len(locks)}, such as {locks[0]!r}"


def check_all_wait(client: Redis, jobs: int) -> None:
    """Checks that all jobs wait in order and none is delayed."""
    waiting = [int(job_id) for job_id in client.lrange(f"{BASE}wait", 0, -1)]
    assert waiting == list(range(jobs, 0, -1)), f"expected jobs 1 to {jobs} to wait in their order, got {len(waiting)}"
    assert not client.zcard(f"{BASE}delayed")
    assert client.zscore(f"{BASE}marker", "0") == 0, "expected the marker that wakes workers"
    for job_id, (delay,) in _fields(client, range(1, jobs + 1), ("delay",)):
        assert delay == b"0", f"expected job {job_id} to have no delay left, got {delay!r}"


def _add_now(queue: BullQueue) -> str:
    """Adds a job of the small tenant."""
    return queue.add({"tenant": SMALL_TENANT, "at": time.monotonic_ns() / 1e6})


def _fields(
    client: Redis, ids: Iterable[int | str], names: tuple[str, ...]
) -> Iterator[tuple[int | str, list[bytes | None]]]:
    remaining = iter(ids)
    while chunk := list(islice(remaining, 1_000)):
        pipeline = client.pipeline(transaction=False)
        for job_id in chunk:
            pipeline.hmget(f"{BASE}{job_id}", names)
        yield from zip(chunk, pipeline.execute(), strict=True)


def _waited(client: Redis, ids: Iterable[int | str]) -> Waited:
    """Computes latencies from `at` in the payload to the returned time, both ms of the same clock."""
    times = []
    for _, (data, began) in _fields(client, ids, ("data", "returnvalue")):
        assert data is not None
        assert began is not None
        times.append(float(began) - json.loads(data)["at"])
    return Waited(percentile(times, 50), percentile(times, 99), max(times))
