"""Whole-queue verbs on 200,000 jobs: Redis answers others all the while, as Node's workers live on the same server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from spark_bull.bull_queue import BullQueue
from spark_bull.local import EmbeddedRedis

pytestmark = pytest.mark.slow

JOBS = 200_000
#: Scripts take 1 to 5 ms here. In one piece each of these verbs takes a second; a shared machine is slow by chance.
USUAL_MS = 10
FEW = 10
RARE_MS = 40
LONGEST_MS = 300
#: A PING is sent by a thread of this process, so it also waits for Python's lock and, with others at work, for a core.
RARE_PING_MS = 150
LONGEST_PING_MS = 600

FILL = """
local payload = string.rep('x', 200)
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local job_id = ARGV[4] .. i
  redis.call('HSET', KEYS[1] .. job_id, 'name', 'x', 'data', payload, 'opts', '{}', 'timestamp', 1600000000000 + i)
  if ARGV[3] == 'list' then
    redis.call('LPUSH', KEYS[2], job_id)
  elseif ARGV[3] == 'set' then
    redis.call('SADD', KEYS[2], job_id)
  else
    redis.call('ZADD', KEYS[2], 1600000000000 + i, job_id)
  end
end
"""


class Server:
    """A server of the test's own, and how long it kept others waiting."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = Redis.from_url(url)

    def fill(self, queue: BullQueue, state: str, count: int = JOBS) -> None:
        kind = queue.handle.dialect.state_key(state).kind
        for first in range(1, count + 1, 5_000):
            last = min(count, first + 4_999)
            base = queue.handle.keys.base
            self.client.eval(FILL, 2, base, base + state, first, last, kind, state[0])

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Fails when a script of the block, or a PING meanwhile, takes too long."""
        self.client.config_set("slowlog-max-len", 1_000_000)
        self.client.config_set("slowlog-log-slower-than", 0)
        self.client.slowlog_reset()
        pings: list[float] = []
        stop = threading.Event()
        pinging = threading.Thread(target=self._ping, args=(pings, stop))
        pinging.start()
        try:
            yield
        finally:
            stop.set()
            pinging.join()
        self.client.config_set("slowlog-log-slower-than", -1)
        log = self.client.slowlog_get(1_000_000)
        scripts = sorted(entry["duration"] / 1_000 for entry in log if entry["command"].startswith(b"EVAL"))
        limits = (("scripts", scripts, RARE_MS, LONGEST_MS), ("PINGs", sorted(pings), RARE_PING_MS, LONGEST_PING_MS))
        for what, taken, rare, longest in limits:
            told = (
                f"{what}: {len(taken)}, median {at(taken, 0.5):.1f}, 99 % {at(taken, 0.99):.1f}, max {taken[-1]:.1f} ms"
            )
            print(told)
            # The middle of very few says nothing.
            assert len(taken) < FEW or at(taken, 0.5) < USUAL_MS, told
            assert at(taken, 0.99) < rare, told
            assert taken[-1] < longest, told

    def _ping(self, pings: list[float], stop: threading.Event) -> None:
        with Redis.from_url(self.url) as client:
            while not stop.is_set():
                start = time.perf_counter()
                client.ping()
                pings.append((time.perf_counter() - start) * 1_000)
                time.sleep(0.002)


def at(ordered: list[float], share: float) -> float:
    return ordered[int(len(ordered) * share)]


@pytest.fixture
def server(own_redis: Callable[..., EmbeddedRedis]) -> Server:
    return Server(own_redis().url)


@pytest.fixture(params=["bull-1", "bull", "bullmq"])
def queue(request: pytest.FixtureRequest, server: Server) -> Iterator[BullQueue]:
    with BullQueue("large", url=server.url, protocol=request.param) as queue:
        yield queue


@pytest.mark.parametrize("state", ["completed", "wait"])
def test_cleaning_a_large_state(server: Server, queue: BullQueue, state: str) -> None:
    server.fill(queue, state)
    with server.answering():
        ids = queue.clean(0, state=state)
    assert len(set(ids)) == len(ids) == JOBS
    assert queue.counts()[state] == 0
    assert server.client.dbsize() <= 3


def test_cleaning_every_second_job_of_a_large_list(server: Server, queue: BullQueue) -> None:
    server.fill(queue, "wait")
    now = queue.handle.connection.now_ms()
    for first in range(1, JOBS, 20_000):
        pipeline = server.client.pipeline(transaction=False)
        for number in range(first, first + 20_000, 2):
            pipeline.hset(f"{queue.handle.keys.base}w{number}", "timestamp", now)
        pipeline.execute()
    with server.answering():
        ids = queue.clean(3_600_000, state="wait")
    assert ids == [f"w{number}" for number in range(2, JOBS + 1, 2)]
    left = server.client.lrange(queue.handle.keys["wait"], 0, -1)[::-1]
    assert left == [b"w%d" % number for number in range(1, JOBS, 2)]


def test_draining_a_large_queue(server: Server, queue: BullQueue) -> None:
    server.fill(queue, "wait", JOBS // 2)
    server.fill(queue, "delayed", JOBS // 2)
    with server.answering():
        assert queue.drain(delayed=True) == JOBS
    assert server.client.dbsize() <= 3


def test_obliterating_a_large_queue(server: Server, queue: BullQueue) -> None:
    for state in ("wait", "delayed", "completed", "failed"):
        server.fill(queue, state, JOBS // 4)
    with server.answering():
        queue.obliterate()
    names = [name for name in server.client.scan_iter(count=1_000) if b":spark:" not in name]
    assert names == []


def test_pausing_and_resuming_a_large_queue(server: Server, queue: BullQueue) -> None:
    server.fill(queue, "wait")
    with server.answering():
        queue.pause()
        queue.resume()
    # Both lists have jobs, after two versions of BullMQ paused the queue, or an overwriting resume was avoided.
    server.client.rename(queue.handle.keys["wait"], queue.handle.keys["paused"])
    server.fill(queue, "wait", JOBS // 2)
    with server.answering():
        queue.resume()
    assert (queue.counts()["wait"], queue.counts()["paused"]) == (JOBS + JOBS // 2, 0)
