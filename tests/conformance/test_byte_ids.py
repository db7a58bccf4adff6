"""An id that is not UTF-8, as no library makes: its job is set aside, or shown with another text; others go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.walk import Slice
from spark_bull.core.queue.monitor.activity import waiting_since
from spark_bull.core.queue.work.claim import work
from spark_bull.core.queue.work.verbs import promote_due
from spark_bull.core.store.round_trips import run
from spark_bull.spark.inspect.source import OpenSlice, batch_reader
from spark_bull.spark.schemas import SCHEMAS
from tests.support.wait import wait_until
from tests.support.work_bench import discover_all, options_of, rescue_all
from tests.support.worker import OurWorker

#: Ids that are no UTF-8: no character, half of one, a surrogate, an overlong one.
BYTES = (b"\xff\xfe", b"id-\xc3", b"\xed\xa0\x80", b"\xc0\xaf")
BAD = BYTES[0]
SHOWN = BAD.decode("utf-8", "replace")
JOBS = 4


def give_id(client: Redis, handle: QueueHandle, job_id: str, new: bytes = BAD) -> None:
    """Renames a job, in the state that it is in."""
    client.rename(handle.keys.job(job_id), handle.keys.base.encode() + new)
    for state in handle.dialect.states.values():
        key = handle.keys[state.key]
        if state.kind == "list" and (place := client.lpos(key, job_id)) is not None:
            client.lset(key, place, new)
        elif state.kind == "zset" and (score := client.zscore(key, job_id)) is not None:
            client.zadd(key, {new: score})
            client.zrem(key, job_id)
        elif state.kind == "set" and client.srem(key, job_id):
            client.sadd(key, new)


def add(queue: BullQueue, **properties: Any) -> list[str]:
    return queue.add_many(NewJob({"n": n}, **properties) for n in range(JOBS)).ids


def aside(client: Redis, queue: BullQueue) -> dict[bytes, bytes]:
    return client.hgetall(queue.handle.keys["damaged"])


def test_a_worker_sets_the_job_aside_and_processes_the_others(
    queue: BullQueue, client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    ids = add(queue)
    give_id(client, queue.handle, ids[1])
    ran = Counter[str]()
    with OurWorker(queue.handle, lambda job: ran.update([job.id]), chunk_size=JOBS) as worker:
        wait_until(lambda: queue.counts()["completed"] == JOBS - 1, "the others to complete")
        wait_until(worker.waits, "the worker to wait")
        # A worker of Bull moves this one to `active` before it claims it.
        ids += add(queue)
        wait_until(lambda: queue.counts()["completed"] == 2 * JOBS - 1, "further ones to complete")
    assert worker.error is None
    assert ran == Counter(set(ids) - {ids[1]})
    assert aside(client, queue) == {BAD: b"id"}
    assert not sum(number for state, number in queue.counts().items() if state != "completed")
    told = [one.getMessage() for one in caplog.records if "was removed from its state" in one.getMessage()]
    assert told == [
        f"queue q: job {SHOWN} can't run and was removed from its state: expected an id that is UTF-8; "
        f"the ids of such jobs are in {queue.handle.keys['damaged']}"
    ]


def test_a_waiting_worker_gets_the_id_first(queue: BullQueue, client: Redis) -> None:
    [other] = queue.add_many([NewJob({}, delay=86_400_000)]).ids
    with OurWorker(queue.handle) as worker:
        wait_until(worker.waits, "the worker to wait")
        client.hset(queue.handle.keys.base.encode() + BAD, mapping={"data": "{}", "opts": "{}", "timestamp": 1})
        client.lpush(queue.handle.keys["wait"], BAD)
        queue.promote(other)
        wait_until(lambda: aside(client, queue), "the id to be set aside")
        wait_until(lambda: queue.counts()["completed"] == 1, "the other job to complete")
    assert worker.error is None


@pytest.mark.parametrize("new", [BAD, *(pytest.param(one, marks=pytest.mark.soak) for one in BYTES[1:])], ids=ascii)
def test_services_move_such_a_job_as_any_other(queue: BullQueue, client: Redis, new: bytes) -> None:
    handle = queue.handle
    ids = add(queue, delay=1)
    give_id(client, handle, ids[1], new)
    wait_until(lambda: promote_due(handle).now and queue.counts()["wait"] == JOBS, "all to be promoted")
    claim = work(handle, WorkSettings("dead"), None, JOBS)
    assert [job.id for job in claim.jobs] == [ids[0], *ids[2:]]
    assert aside(client, queue) == {new: b"id"}
    give_id(client, handle, ids[0], new)
    rescue_all(handle, ids)
    assert (queue.counts()["active"], queue.counts()["wait"]) == (0, JOBS - 1)
    assert len(work(handle, WorkSettings("slot"), None, JOBS).jobs) == JOBS - 2


def test_reads_show_the_job_with_another_text(
    queue: BullQueue, client: Redis, open_queue: Callable[..., BullQueue]
) -> None:
    ids = add(queue)
    give_id(client, queue.handle, ids[1])
    batches = batch_reader(options_of(queue), SCHEMAS["jobs"]).read(OpenSlice(Slice()))
    read = {row["id"] for batch in batches for row in batch.to_pylist()}
    assert read == {job.id for job in queue.page("wait")} == {*ids} - {ids[1]} | {SHOWN}
    assert run(queue.handle.connection, waiting_since(queue.handle))
    assert queue.stats()
    assert [open_queue("q", protocol).protocol for protocol in ("auto", queue.protocol)] == [queue.protocol] * 2


def test_a_reader_of_results_gets_all_jobs(queue: BullQueue, client: Redis) -> None:
    ids = add(queue)
    with OurWorker(queue.handle):
        wait_until(lambda: queue.counts()["completed"] == JOBS, "all jobs to complete")
    client.delete(queue.handle.keys["events"])
    give_id(client, queue.handle, ids[1])
    ledger = ResultLedger(queue.handle, "reader", owner="me")
    ledger.open("earliest", create=True)
    discover_all(ledger)
    _, chunk = ledger.rows(["data"], 100).read(0, JOBS)
    assert {*chunk.columns["id"]} == {job_id.encode() for job_id in ids if job_id != ids[1]} | {BAD}
    ledger.archive(JOBS)
    assert queue.counts()["completed"] == 0


def test_such_jobs_are_removed_with_all_others(queue: BullQueue, client: Redis) -> None:
    def renamed() -> None:
        give_id(client, queue.handle, add(queue, timestamp=1_700_000_000_000)[1])

    renamed()
    queue.drain()
    assert queue.counts()["wait"] == 0
    renamed()
    assert len(queue.clean(0, 0, "wait")) == JOBS
    renamed()
    queue.obliterate(force=True)
    assert not client.exists(queue.handle.keys.base.encode() + BAD)
