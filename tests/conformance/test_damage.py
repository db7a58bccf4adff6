"""A damaged job fails with a reason that names the field, or runs if the field does not matter.

Other jobs of its chunk are not affected, whatever state the damaged job is in, and the queue can still be read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from redis import Redis

from spark_bull.errors import UnrecoverableError
from spark_bull.model.jobs import NewJob
from spark_bull.model.outcomes import Outcomes
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.core.walk import Slice
from spark_bull.queue.jobs.read import read_ids, read_jobs
from spark_bull.queue.process.claim import read_claimed, rescue, unpack_claimed, work
from spark_bull.queue.process.claim_ledger import ClaimLedger
from spark_bull.queue.process.service_verbs import promote_due
from spark_bull.spark.inspect.source import OpenSlice, batch_reader
from spark_bull.spark.process.claim_batch import claim_batch
from spark_bull.spark.schemas import SCHEMAS
from spark_bull.worker.job.failure import failure
from spark_bull.worker.job.running_job import RunningJob
from tests.support.damage import ALL, DAMAGES, NO_PAYLOAD, Damage, damage_job
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

#: Most of its scripts are those of Bull 3 and 4: its damages are part of `make soak`.
ALIKE = ("bull-1",)
each_damage = pytest.mark.parametrize(
    ("queue", "damage"),
    [
        pytest.param(dialect, damage, marks=[pytest.mark.soak] if dialect in ALIKE else [])
        for damage in DAMAGES
        for dialect in damage.dialects
    ],
    indirect=["queue"],
    ids=str,
)
ENDED = ("completed", "failed")
JOBS = 7
BAD = 3


@pytest.fixture
def queue(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> Iterator[BullQueue]:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=request.param) as queue:
        yield queue


def add(queue: BullQueue, **properties: Any) -> tuple[list[str], str]:
    """Ids of new jobs, and the id of the one to damage."""
    ids = queue.add_many(NewJob({"n": n}, **properties) for n in range(JOBS)).ids
    return ids, ids[BAD]


def is_empty(queue: BullQueue) -> bool:
    return not sum(count for state, count in queue.counts().items() if state not in ENDED)


def end_of(queue: BullQueue, job_id: str) -> tuple[str | None, str | None]:
    """The state and the failed reason of a job: None if it is missing, "aside" if it is recorded as damaged."""
    handle = queue.handle
    if handle.connection.call("HEXISTS", handle.keys["damaged"], job_id):
        return "aside", None
    job = queue.job(job_id)
    return (None, None) if job is None else (job.state, job.failed_reason)


def check_end(queue: BullQueue, damage: Damage, job_id: str) -> None:
    state, reason = end_of(queue, job_id)
    if damage.outcome in ("gone", "aside"):
        assert state == {"gone": None, "aside": "aside"}[damage.outcome]
        assert not queue.handle.connection.call("EXISTS", queue.handle.keys.lock(job_id))
    elif damage.outcome == "runs":
        assert state == "completed", reason
    else:
        assert state == "failed"
        assert re.search(damage.outcome, reason or ""), reason


def check_read(queue: BullQueue, ids: list[str]) -> None:
    """All ways of reading return all jobs that exist."""
    keys, settings = queue.handle.keys, queue.handle.connection.settings
    options = {"url": str(settings.url), "prefix": keys.prefix, "queue": keys.queue, "protocol": queue.protocol}
    for chosen in ({}, {"jobIds": ",".join(ids)}):
        batches = batch_reader({**options, **chosen}, SCHEMAS["jobs"]).read(OpenSlice(Slice()))
        assert sum(batch.num_rows for batch in batches) >= JOBS - 1
    for chunks in (read_jobs(queue.handle), read_ids(queue.handle, ids)):
        assert sum(len(list(chunk.jobs("q"))) for chunk in chunks) >= JOBS - 1
    assert sum(len(queue.page(state)) for state in queue.counts()) >= JOBS - 1


@each_damage
def test_a_damaged_job_does_not_affect_others(queue: BullQueue, damage: Damage) -> None:
    ids, bad = add(queue)
    damage_job(queue, damage, bad)
    check_read(queue, ids)
    ran = Counter[str]()

    def processor(job: RunningJob) -> Any:
        ran[job.id] += 1
        return [job.data, job.progress, job.priority, job.opts, job.name]

    with OurWorker(queue.handle, processor, chunk_size=JOBS):
        wait_until(lambda: is_empty(queue), "all jobs to end")
    check_end(queue, damage, bad)
    check_read(queue, ids)
    healthy = {job_id for job_id in ids if job_id != bad}
    done = {job.id: job for job in queue.page("completed")}
    assert healthy <= done.keys()
    assert all(done[job_id].attempts_made in (0, 1) and ran[job_id] == 1 for job_id in healthy)


@each_damage
def test_a_damaged_job_passes_all_states_without_blocking_others(
    queue: BullQueue, damage: Damage, client: Redis
) -> None:
    ids, bad = add(queue, delay=1, attempts=3, backoff=1)
    damage_job(queue, damage, bad)
    wait_until(lambda: promote_due(queue.handle).moved == 0 and queue.counts()["delayed"] == 0, "all to be promoted")
    dead = work(queue.handle, ClaimSettings("dead", lock_ms=1), None, JOBS)
    assert dead.claimed >= JOBS - 1
    wait_until(lambda: not any(client.exists(queue.handle.keys.lock(i)) for i in ids if i != bad), "locks to expire")

    def all_rescued() -> bool:
        client.delete(queue.handle.keys["stalled_check"], queue.handle.keys["rescue_check"])
        rescue(queue.handle, check_ms=1, max_stalled=9)
        return queue.counts()["active"] == 0

    wait_until(all_rescued, "stalled jobs to be rescued")
    failed_once = Counter[str]()

    def processor(job: RunningJob) -> None:
        failed_once[job.id] += 1
        if failed_once[job.id] == 1:
            raise ValueError("the first attempt")

    # As with Node's workers, the next attempt of such a job is never due.
    is_late = damage.name == "backoff huge"

    def has_ended() -> bool:
        promote_due(queue.handle)
        return is_empty(queue) or (is_late and queue.counts()["delayed"] + queue.counts()["completed"] == JOBS)

    with OurWorker(queue.handle, processor, chunk_size=JOBS):
        wait_until(has_ended, "all jobs to end")
    healthy = {job_id for job_id in ids if job_id != bad}
    assert healthy <= {job.id for job in queue.page("completed")}
    assert {failed_once[job_id] for job_id in healthy} == {2}
    if damage.outcome in ("gone", "aside"):
        check_end(queue, damage, bad)
    else:
        # Without its options a job has no second attempt.
        assert end_of(queue, bad)[0] in (("delayed",) if is_late else ENDED)
    check_read(queue, ids)


@each_damage
def test_a_job_that_is_damaged_while_it_runs_does_not_affect_its_chunk(
    queue: BullQueue, damage: Damage, client: Redis
) -> None:
    for outcome in ("completed", "failed", "returned"):
        ids, bad = add(queue)
        claim = work(queue.handle, ClaimSettings("slot"), None, JOBS)
        damage_job(queue, damage, bad)
        outcomes = Outcomes(claim.token)
        for job in claim.jobs:
            if outcome == "completed":
                outcomes.complete(job.id, "1")
            elif outcome == "failed":
                outcomes.failed.append(failure(queue.handle.dialect, job, "bad", stack="trace"))  # type: ignore[arg-type]
            else:
                outcomes.returned.append(job.id)
        lost = work(queue.handle, ClaimSettings("slot"), outcomes, 0).lost
        assert {one.id for one in lost} <= {bad}
        state = "wait" if outcome == "returned" else outcome
        assert {job.id for job in queue.page(state)} >= {job_id for job_id in ids if job_id != bad}
        assert queue.counts()["active"] == (1 if damage.name == "lock of another type" else 0)
        client.delete(*client.scan_iter(match=f"{queue.handle.keys.base}*", count=1000))


@each_damage
def test_a_claiming_query_reads_damaged_jobs(queue: BullQueue, damage: Damage) -> None:
    ids, bad = add(queue)
    damage_job(queue, damage, bad)
    ledger = ClaimLedger(queue.handle, "reader")
    portions = [taken.portion for taken in ledger.claim(ClaimSettings("reader"), JOBS)]
    batches = [claim_batch(queue.handle, portion.token, unpack_claimed(portion.packed)) for portion in portions]
    rows = {row["id"]: row for row in pa.Table.from_batches(batches).to_pylist()}
    assert rows.keys() >= set(ids) - {bad}
    assert all(row["deferredFailure"] is None for job_id, row in rows.items() if job_id != bad)
    if damage.outcome in ("gone", "aside"):
        assert bad not in rows
    elif bad not in rows:
        assert end_of(queue, bad) == ("failed", NO_PAYLOAD.strip("^$"))
    else:
        fails = damage.outcome != "runs" and not damage.name.startswith("data")
        assert (rows[bad]["deferredFailure"] is not None) == fails
        assert [job.id for job in read_claimed(queue.handle, [bad])] == [bad]


@each_damage
def test_a_damaged_job_can_be_promoted_and_retried_manually(queue: BullQueue, damage: Damage) -> None:
    _, bad = add(queue, delay=3_600_000)
    damage_job(queue, damage, bad)
    hash_there = queue.handle.connection.call("TYPE", queue.handle.keys.job(bad)) == b"hash"
    if damage.outcome != "gone":
        queue.promote(bad)
        assert queue.counts()["delayed"] == JOBS - 1

    def processor(job: RunningJob) -> None:
        # Huge attempts would never end.
        raise UnrecoverableError("bad")

    with OurWorker(queue.handle, processor):
        wait_until(
            lambda: queue.counts()["delayed"] + queue.counts()["failed"] == sum(queue.counts().values()), "an end"
        )
    if hash_there and queue.counts()["failed"]:
        queue.retry(bad)
        assert queue.counts()["failed"] == 0
        assert sum(queue.counts().values()) == JOBS


@each_damage
def test_a_damaged_job_can_be_removed_with_all_others(queue: BullQueue, damage: Damage) -> None:
    def damaged() -> str:
        _, bad = add(queue, timestamp=1_700_000_000_000)
        damage_job(queue, damage, bad)
        return bad

    damaged()
    queue.drain()
    assert sum(queue.counts().values()) == 0
    bad = damaged()
    is_held = damage.name == "lock of another type"
    if not is_held:
        queue.remove(bad)
        assert sum(queue.counts().values()) == JOBS - 1
    damaged()
    queue.clean(0, 0, "wait")
    left = int(is_held) * 2 + int(damage.name == "timestamp huge")
    assert sum(queue.counts().values()) == left
    damaged()
    queue.obliterate(force=True)
    assert sum(queue.counts().values()) == 0


@each_damage
def test_a_queue_with_a_damaged_job_can_be_opened(queue: BullQueue, damage: Damage) -> None:
    if (queue.protocol, damage.name) == ("bull-1", "name no UTF-8"):
        return  # A job with a name is one of Bull 3.
    ids, _ = add(queue)
    damage_job(queue, damage, ids[-1])
    keys, url = queue.handle.keys, queue.handle.connection.settings.url
    for protocol in ("auto", queue.protocol):
        with BullQueue("q", url=url, prefix=keys.prefix, protocol=protocol) as opened:
            assert (opened.protocol, opened.counts()["wait"]) == (queue.protocol, JOBS)


@pytest.mark.parametrize("queue", ALL, indirect=True)
def test_obliterate_removes_everything_of_a_queue_with_damaged_jobs(queue: BullQueue, client: Redis) -> None:
    keys = queue.handle.keys
    bad = add(queue)[1]
    client.delete(keys.job(bad))
    client.set(keys.job(bad), "no hash")
    claim_settings = ClaimSettings("slot")
    claim = work(queue.handle, claim_settings, None, 20)
    work(queue.handle, claim_settings, Outcomes(claim.token, returned=[claim.jobs[0].id], limited_ms=3_600_000), 0)
    assert client.hkeys(keys["damaged"]) == [bad.encode()]
    queue.obliterate(force=True)
    lasting = [key for key in client.scan_iter(f"{keys.base}*") if client.ttl(key) == -1]
    assert (lasting, client.exists(keys["rate_limited"])) == ([], 0)


@pytest.mark.parametrize("queue", ALL, indirect=True)
@pytest.mark.parametrize("score", ["inf", "-inf", str(2**60), "-5"])
def test_a_delayed_job_with_an_invalid_time_does_not_block_others(queue: BullQueue, score: str) -> None:
    add(queue, delay=1)
    queue.handle.connection.call("ZADD", queue.handle.keys["delayed"], score, queue.add({"n": 0}, delay=3_600_000))
    wait_until(lambda: promote_due(queue.handle).now and queue.counts()["wait"] >= JOBS, "the others to be promoted")
    assert len(work(queue.handle, ClaimSettings("slot"), None, 20).jobs) >= JOBS
    assert promote_due(queue.handle).next_due is None


def test_prevent_parsing_data_keeps_the_payload_as_text(redis_url: str, prefix: str) -> None:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bull") as queue:
        job_id = queue.add({"n": 1}, opts={"preventParsingData": True})
        queue.handle.connection.call("HSET", queue.handle.keys.job(job_id), "data", "no JSON")
        with OurWorker(queue.handle, lambda job: job.data):
            wait_until(lambda: queue.counts()["completed"] == 1, "the job to end")
        job = queue.job(job_id)
        assert job is not None
        assert (job.returnvalue, job.data) == ("no JSON", "no JSON")
