"""Operations on large queues do not block Redis for other clients.

The time of a script depends on the machine, so the tests check that its work does not depend on the size of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import pytest
from redis import Redis

from spark_bull import BullQueue, Change, EmbeddedRedis, NewJob, WrongState
from spark_bull.core.model.limits import NO_WORKER
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, MOVE_SIZE, RECEIPT_TTL_MS, REMOVE_SIZE, touched_keys
from spark_bull.core.queue.manage.manage import change_chunks
from tests.support.traffic import script_work

JOBS = 20_000
#: Maximum number of elements (keys, fields, ids) that a script names or reads per job of a chunk.
ELEMENTS_PER_JOB = 30
#: The same for a child, whose state and children are looked for.
ELEMENTS_PER_CHILD = 45
#: The same for a script that only moves ids between lists, which handles larger chunks.
ELEMENTS_PER_MOVE = 3

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


@dataclass
class Server:
    """A separate server for one test."""

    url: str
    client: Redis

    def fill(self, queue: BullQueue, state: str, count: int = JOBS) -> None:
        kind = queue.handle.dialect.state_key(state).kind
        for first in range(1, count + 1, 5_000):
            last = min(count, first + 4_999)
            base = queue.handle.keys.base
            self.client.eval(FILL, 2, base, base + state, first, last, kind, state[0])

    def push(self, queue: BullQueue, count: int) -> None:
        """Adds waiting ids without jobs."""
        for first in range(0, count, 50_000):
            self.client.lpush(queue.handle.keys["wait"], *(f"x{n}" for n in range(first, first + 50_000)))

    @contextmanager
    def in_pieces(self, jobs: int, piece: int = REMOVE_SIZE, each: int = ELEMENTS_PER_JOB) -> Iterator[None]:
        """Fails unless the block handles `jobs` jobs with scripts that each do the work of at most one chunk."""
        with script_work(self.client) as scripts:
            yield
        # A scan of a SET may return some more ids than it is asked for.
        assert len(scripts) >= 0.9 * jobs / piece
        assert max(script.elements for script in scripts) <= piece * each
        assert max(script.walks for script in scripts) <= 1


@pytest.fixture
def server(own_redis: Callable[..., EmbeddedRedis]) -> Server:
    url = own_redis().url
    return Server(url, Redis.from_url(url))


#: The scripts of Bull 1 are their own.
each_kind = pytest.mark.parametrize("queue", ["bull-1", "bullmq"], indirect=True)


@pytest.fixture(params=["bullmq"])
def queue(request: pytest.FixtureRequest, server: Server) -> Iterator[BullQueue]:
    with BullQueue("large", url=server.url, protocol=request.param) as queue:
        yield queue


@pytest.mark.parametrize(
    ("queue", "state"), [("bull-1", "completed"), ("bullmq", "completed"), ("bullmq", "wait")], indirect=["queue"]
)
def test_a_large_state_is_cleaned_in_chunks(server: Server, queue: BullQueue, state: str) -> None:
    server.fill(queue, state)
    with server.in_pieces(JOBS):
        ids = queue.clean(0, state=state)
    assert len(set(ids)) == len(ids) == JOBS
    assert queue.counts()[state] == 0
    assert server.client.dbsize() <= 3


def test_few_old_jobs_among_many_are_cleaned_with_few_walks(server: Server, queue: BullQueue) -> None:
    server.fill(queue, "wait")
    wait, now = queue.handle.keys["wait"], queue.handle.connection.now_ms()
    old = [f"w{number}" for number in range(50, JOBS + 1, 50)]
    with server.client.pipeline(transaction=False) as pipeline:
        for job_id in {f"w{number}" for number in range(1, JOBS + 1)} - set(old):
            pipeline.hset(f"{queue.handle.keys.base}{job_id}", "timestamp", now)
        pipeline.execute()
    with script_work(server.client) as scripts:
        ids = queue.clean(3_600_000, state="wait")
    assert ids == old
    assert server.client.lrange(wait, 0, -1)[::-1] == [b"w%d" % n for n in range(1, JOBS + 1) if n % 50]
    # One walk through the list removes all old jobs among 500.
    assert sum(script.walks for script in scripts) <= JOBS / 500 + 1


@each_kind
def test_a_large_queue_is_drained_and_obliterated_in_chunks(server: Server, queue: BullQueue) -> None:
    server.fill(queue, "wait", JOBS // 2)
    server.fill(queue, "delayed", JOBS // 2)
    with server.in_pieces(JOBS):
        assert queue.drain(delayed=True) == JOBS
    assert server.client.dbsize() <= 3
    for state in ("wait", "delayed", "completed", "failed"):
        server.fill(queue, state, JOBS // 4)
    # The first script pauses the queue, which moves ids.
    with server.in_pieces(JOBS, each=MOVE_SIZE * ELEMENTS_PER_MOVE // REMOVE_SIZE):
        queue.obliterate()
    names = [name for name in server.client.scan_iter(count=1_000) if b":spark:" not in name]
    assert names == []


@each_kind
def test_a_large_queue_is_paused_and_resumed_in_chunks(server: Server, queue: BullQueue) -> None:
    server.fill(queue, "wait")
    with server.in_pieces(0, MOVE_SIZE, ELEMENTS_PER_MOVE):
        queue.pause()
        queue.resume()
    # Both lists have jobs, as after two versions of BullMQ have paused the queue.
    server.client.rename(queue.handle.keys["wait"], queue.handle.keys["paused"])
    server.fill(queue, "wait", JOBS // 2)
    with server.in_pieces(JOBS // 2, MOVE_SIZE, ELEMENTS_PER_MOVE):
        queue.resume()
    assert (queue.counts()["wait"], queue.counts()["paused"]) == (JOBS + JOBS // 2, 0)


def test_many_children_are_removed_in_chunks(server: Server, queue: BullQueue) -> None:
    keys = queue.handle.keys
    queue.add({}, job_id="parent")
    server.fill(queue, "delayed")
    for first in range(1, JOBS + 1, 5_000):
        server.client.sadd(keys.children("parent"), *(keys.job(f"d{n}") for n in range(first, first + 5_000)))
    with server.in_pieces(JOBS, CHUNK_SIZE, ELEMENTS_PER_CHILD):
        assert queue.remove_unprocessed_children("parent") == JOBS
    assert queue.counts()["delayed"] == 0
    assert server.client.exists(keys.children("parent")) == 0


def change_in_one_call(queue: BullQueue, *changes: Change) -> list[str]:
    """Makes changes with one script call; returns the outcomes of those that it has made."""
    names = {"id": "id", "action": "action", "priority": "priority", "failed_reason": "failedReason", "to": "to"}
    rows = {column: [getattr(change, name) for change in changes] for name, column in names.items()}
    (chunk,) = change_chunks(queue.handle, rows, range(len(changes)), CHUNK_SIZE, 1 << 20)
    touched = touched_keys(queue.handle, chunk.queues)
    receipt = queue.handle.keys.receipt(uuid4().hex)
    args = {"number": "0", "from": 1, "chunk": chunk.packed, "ttl_ms": RECEIPT_TTL_MS, **NO_WORKER}
    _, outcomes = queue.handle.run("manage", args, receipt=receipt, touched=touched)
    return [outcome.decode() for outcome in outcomes]


@each_kind
def test_a_job_in_a_list_that_is_too_long_for_one_script_is_changed(server: Server, queue: BullQueue) -> None:
    """Each script changes at least one job, however long it has to search: otherwise a write would never end."""
    server.push(queue, 300_000)
    changes = [
        Change("a", "move", to="other"),
        Change("b", "remove"),
        Change("c", "fail", failed_reason="bad"),
        Change("d", "complete"),
        Change("e", "prioritize", priority=1),
    ]
    for change in changes if queue.protocol != "bull-1" else changes[:-1]:
        server.client.hset(queue.handle.keys.job(change.id), mapping={"data": "{}", "opts": "{}", "timestamp": 1})
        server.client.linsert(queue.handle.keys["wait"], "AFTER", "x200000", change.id)
        assert change_in_one_call(queue, change) == ["done"]


def test_jobs_that_do_not_wait_are_prioritized_without_a_search_of_those_that_do(
    server: Server, queue: BullQueue
) -> None:
    server.fill(queue, "wait", 1_000)
    for state in ("failed", "completed", "delayed"):
        server.fill(queue, state, 20)
    ids = [f"{state}{n}" for state in "fcd" for n in range(1, 21)]
    with script_work(server.client) as scripts:
        outcomes = [one.outcome for one in queue.manage(Change(job_id, "prioritize", priority=2) for job_id in ids)]
    assert outcomes == ["done"] * 60
    assert sum(script.walks for script in scripts) == 0


def test_ids_without_jobs_are_removed_with_a_bounded_search(server: Server, queue: BullQueue) -> None:
    server.push(queue, 200_000)
    gone = [Change(f"gone{n}", "remove") for n in range(3)]
    assert change_in_one_call(queue, *gone) == ["missing"]
    assert [one.outcome for one in queue.manage([*gone, Change("x150000", "remove")])] == ["missing"] * 3 + ["done"]


@pytest.mark.parametrize("queue", ["bull"], indirect=True)
def test_jobs_with_a_priority_are_promoted_one_per_script_into_a_long_list(server: Server, queue: BullQueue) -> None:
    server.push(queue, 300_000)
    ids = queue.add_many([NewJob({}, delay=3_600_000, priority=priority) for priority in (1, 2, 0)]).ids
    changes = [Change(job_id, "promote") for job_id in ids]
    assert change_in_one_call(queue, *changes) == ["done"]
    assert [one.outcome for one in queue.manage(changes[1:])] == ["done", "done"]


CHAIN = """
for i = 1, tonumber(ARGV[1]) do
  local job_key = KEYS[1] .. 'j' .. i
  redis.call('HSET', job_key, 'name', 'x', 'data', '{}', 'opts', '{}', 'timestamp', 1)
  if i > 1 then
    redis.call('HSET', KEYS[1] .. 'j' .. i - 1, 'parentKey', job_key)
    redis.call('SADD', job_key .. ':dependencies', KEYS[1] .. 'j' .. i - 1)
    redis.call('ZADD', KEYS[1] .. 'waiting-children', i, 'j' .. i)
  else
    redis.call('LPUSH', KEYS[1] .. 'wait', 'j1')
  end
end
"""


def test_a_tree_with_more_levels_than_the_stack_of_lua_is_left_alone(server: Server, queue: BullQueue) -> None:
    """Otherwise a write that removes such a job could never be finished."""
    server.client.eval(CHAIN, 1, queue.handle.keys.base, 30_000)
    changes = [Change("j30000", "remove"), Change("j30000", "discard-children"), Change("j30000", "update", data=1)]
    assert [one.outcome for one in queue.manage(changes)] == ["wrong_state", "wrong_state", "done"]
    with pytest.raises(WrongState, match=r"expected job j30000 .* to be in a tree of at most 1,000 levels"):
        queue.remove("j30000")
    assert queue.counts()["waiting-children"] == 29_999
    assert [one.outcome for one in queue.manage([Change("j900", "remove")])] == ["done"]
    # The parent of the removed one starts.
    assert (queue.counts()["waiting-children"], queue.counts()["wait"]) == (30_000 - 901, 1)
