"""Calls while tasks, workers, connections and Redis fail: each row has one result, and one job."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis
from spark_bull.core.queue.call.caller import CallEnd, Caller
from spark_bull.core.queue.call.flight import Flight, Lease
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.job.running_job import RunningJob
from tests.faults.drivers import driver
from tests.support.drivers import DriverProcess
from tests.support.network import LosingProxy
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.wait import PATIENCE_S, Background, wait_until
from tests.support.worker import OurWorker

OwnRedis = Callable[..., EmbeddedRedis]
HOUR_MS = 3_600_000


class Task(Background):
    """An attempt of a task, in a thread: calls for numbers, and their outcomes."""

    def __init__(self, handle: QueueHandle, rows: int, *, in_flight: int = 50) -> None:
        super().__init__()
        self.found: list[tuple[int, CallEnd]] = []
        self._handle, self._rows, self._in_flight = handle, rows, in_flight
        self.start()

    def work(self) -> None:
        caller = Caller(self._handle, "aa-0", keep_ms=HOUR_MS, defaults={})
        flight = Flight(caller, timeout_ms=HOUR_MS)
        with Lease(caller):
            for start in range(0, self._rows, 10):
                while len(flight) > self._in_flight - 10:
                    self._keep(flight.look())
                rows = range(start, min(start + 10, self._rows))
                self._keep(flight.add([json.dumps({"n": n}) for n in rows], rows))
            while len(flight):
                self._keep(flight.look())
        caller.close()

    def _keep(self, ended: list) -> None:
        self.found += [(one.call.row, one.outcome) for one in ended]

    def results(self) -> list[tuple[int, CallEnd]]:
        self.stop()
        return sorted(self.found)


class Counting:
    """A processor that counts the jobs that it has run, by their numbers."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()

    def __call__(self, job: RunningJob) -> int:
        self.runs[job.data["n"]] += 1
        return int(job.data["n"])


def values(count: int) -> list[tuple[int, CallEnd]]:
    return [(n, CallEnd(b"%d" % n, None)) for n in range(count)]


def test_two_attempts_at_once_run_one_job_per_row(own_redis: OwnRedis) -> None:
    with BullQueue("q", url=own_redis().url, protocol="bullmq") as queue:
        processor = Counting()
        with OurWorker(queue.handle, processor, chunk_size=5):
            tasks = [Task(queue.handle, 1_000) for _ in range(2)]
            assert [task.results() for task in tasks] == [values(1_000)] * 2
        assert processor.runs == dict.fromkeys(range(1_000), 1)


def test_lost_replies_repeat_no_call(own_redis: OwnRedis) -> None:
    server = own_redis()
    with BullQueue("q", url=server.url, protocol="bullmq") as queue, LosingProxy(server.port, each=3) as proxy:
        processor = Counting()
        with OurWorker(queue.handle, processor), BullQueue("q", url=proxy.url, protocol="bullmq") as there:
            assert Task(there.handle, 300).results() == values(300)
        assert proxy.lost >= 5
        assert processor.runs == dict.fromkeys(range(300), 1)


def test_calls_continue_after_a_restart_of_redis(own_redis: OwnRedis) -> None:
    server = own_redis({"appendonly": "yes", "appendfsync": "always"})
    with BullQueue("q", url=server.url, protocol="bullmq", retry_ms=int(PATIENCE_S * 1000)) as queue:
        killed = threading.Event()
        counting = Counting()

        def processor(job: RunningJob) -> int:
            assert job.data["n"] < 100 or killed.wait(PATIENCE_S)
            return counting(job)

        with OurWorker(queue.handle, processor, chunk_size=10, lock_ms=HOUR_MS):
            task = Task(queue.handle, 400)
            wait_until(lambda: len(task.found) > 20, "some jobs to end")
            server.kill()
            killed.set()
            server.restart()
            assert task.results() == values(400)
        assert counting.runs == dict.fromkeys(range(400), 1)


@pytest.mark.interop
@each_peer_of("bullmq")
def test_jobs_of_a_killed_worker_of_node_have_one_result(
    queue: BullQueue, node: Callable[..., NodePeer], client: Redis, prefix: str, peer: Peer
) -> None:
    """Node may run such a job twice."""
    dying = node(peer.alias, prefix=prefix, alone=True)
    dying.call("process", queue="q", concurrency=5)
    task = Task(queue.handle, 1_000)
    dying.wait_for_events("completed", 100)
    dying.kill()
    for kept in ("*:lock", "stalled-check"):
        for key in client.scan_iter(f"{prefix}:q:{kept}"):
            client.delete(key)
    stalled = {"stalledInterval": 200, "maxStalledCount": 5}
    node(peer.alias, prefix=prefix).call("process", queue="q", concurrency=20, opts=stalled)
    found = task.results()
    assert [row for row, _ in found] == list(range(1_000))
    echoes = [json.loads(outcome.value or b"null") for _, outcome in found]
    assert echoes == [{"echo": {"n": n}} for n in range(1_000)]


@pytest.mark.rest
def test_a_killed_driver_leaves_no_jobs_to_the_next_run_which_loses_no_call(
    own_redis: OwnRedis, tmp_path: Path
) -> None:
    """The second run calls all rows: those whose jobs had started in the first one run twice, the others once."""
    url, rows, chunk = own_redis().url, 600, 5
    counting, go_on = Counting(), threading.Event()

    def processor(job: RunningJob) -> int:
        assert len(counting.runs) < 100 or go_on.wait(PATIENCE_S)
        counting.runs[job.data["id"]] += 1
        return int(job.data["id"])

    def calling(name: str) -> DriverProcess:
        options = {"in_flight": 100, "url": url, "protocol": "bullmq"}
        return driver(tmp_path / f"{name}.log", "call", file=str(tmp_path / name), rows=rows, **options)

    with BullQueue("q", url=url, protocol="bullmq") as queue, calling("first") as first:
        call, open_callers = queue.handle.connection.call, queue.handle.keys["open_callers"]
        with OurWorker(queue.handle, processor, chunk_size=chunk):
            wait_until(lambda: len(counting.runs) == 100 or not first.alive, "some jobs to run")
            wait_until(lambda: call("ZCARD", open_callers) == 2 or not first.alive, "both tasks to call")
            left = set(call("ZRANGE", open_callers, 0, -1))
            # Their processes have ended: none renews a lease after this.
            first.kill()
            assert len(left) == 2
            with calling("second") as second:

                def others() -> set[bytes]:
                    """The callers of the second run. The leases of the others lapse."""
                    for caller in left:
                        call("ZADD", open_callers, "XX", 1, caller)
                    return set(call("ZRANGE", open_callers, 0, -1)) - left

                wait_until(lambda: len(others()) == 2 or not second.alive, "the second run to remove the jobs")
                go_on.set()
                wait_until(lambda: not second.alive, "the second run to end")
                assert (tmp_path / "second").exists(), second.output()
        assert sum(queue.counts().values()) == 0
    found = json.loads((tmp_path / "second").read_text())
    assert sorted((row, result, error) for row, error, result in found) == [(n, str(n), None) for n in range(rows)]
    assert {*counting.runs} == {*range(rows)}
    assert max(counting.runs.values()) <= 2
    assert sum(counting.runs.values()) <= rows + 100 + chunk
