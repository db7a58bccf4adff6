"""A damaged job fails with a reason that names the field, or runs if the field does not matter.

Other jobs of its chunk are not affected, whatever state the damaged job is in, and the queue can still be read.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from redis import Redis

from spark_bull.core.errors import UnrecoverableError
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import Limiter, WorkSettings
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.walk import Slice
from spark_bull.core.queue.jobs.read import read_ids, read_jobs
from spark_bull.core.queue.work.claim import read_claimed, unpack_claimed, work
from spark_bull.core.queue.work.claim_ledger import ClaimLedger
from spark_bull.core.queue.work.verbs import promote_due
from spark_bull.run.job.outcomes import failure
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.inspect.source import OpenSlice, batch_reader
from spark_bull.spark.schemas import SCHEMAS
from spark_bull.spark.work.claim_batch import claim_batch
from tests.conformance.damages import ALL, DAMAGES, NO_PAYLOAD, QUEUE_DAMAGES, Damage
from tests.support.jobs import HOUR
from tests.support.wait import wait_until
from tests.support.work_bench import each_dialect, options_of, rescue_all
from tests.support.worker import OurWorker

#: All damages of jobs at once, or one of the queue.
DAMAGED = [(dialect, [one for one in DAMAGES if dialect in one.dialects]) for dialect in ALL]
all_damages = pytest.mark.parametrize(("queue", "damages"), DAMAGED, indirect=["queue"], ids=[*ALL])
each_damage = pytest.mark.parametrize(
    ("queue", "damages"),
    [*DAMAGED, *((dialect, [one]) for one in QUEUE_DAMAGES for dialect in one.dialects)],
    indirect=["queue"],
    ids=[*ALL, *(f"{dialect}-{one}" for one in QUEUE_DAMAGES for dialect in one.dialects)],
)
ENDED = ("completed", "failed")
#: Damages with which a next attempt is never due, and with which a job counts as running.
LATE, HELD = "backoff huge", "lock of another type"


@dataclass
class Jobs:
    """Jobs of which some are damaged, each between others that are not."""

    ids: list[str]
    bad: dict[str, Damage]

    @property
    def healthy(self) -> set[str]:
        return {*self.ids} - self.bad.keys()

    def damage(self, queue: BullQueue) -> None:
        for job_id, damage in self.bad.items():
            damage.apply(queue.handle, job_id)


def add(queue: BullQueue, damages: list[Damage], **properties: Any) -> Jobs:
    ids = queue.add_many(NewJob({"n": n}, **properties) for n in range(2 * len(damages) + 1)).ids
    return Jobs(ids, dict(zip(ids[1::2], damages, strict=True)))


def add_damaged(queue: BullQueue, damages: list[Damage], **properties: Any) -> Jobs:
    jobs = add(queue, damages, **properties)
    jobs.damage(queue)
    return jobs


def left(queue: BullQueue) -> int:
    """The number of jobs that have not ended."""
    return sum(count for state, count in queue.counts().items() if state not in ENDED)


def end_of(queue: BullQueue, job_id: str) -> tuple[str | None, str | None]:
    """The state and the failed reason of a job: "gone" if it is missing, "aside" if it is recorded as damaged."""
    handle = queue.handle
    if handle.connection.call("HEXISTS", handle.keys["damaged"], job_id):
        return "aside", None
    job = queue.job(job_id)
    return ("gone", None) if job is None else (job.state, job.failed_reason)


def check_end(queue: BullQueue, damage: Damage, job_id: str) -> None:
    state, reason = end_of(queue, job_id)
    if damage.outcome in ("gone", "aside"):
        assert state == damage.outcome, damage
        assert not queue.handle.connection.call("EXISTS", queue.handle.keys.lock(job_id)), damage
    elif damage.outcome == "runs":
        assert state == "completed", (damage, reason)
    else:
        assert state == "failed", damage
        assert re.search(damage.outcome, reason or ""), (damage, reason)


def check_read(queue: BullQueue, jobs: Jobs) -> None:
    """All ways of reading return all jobs that exist."""
    least = len(jobs.ids) - len([one for one in jobs.bad.values() if one.outcome in ("gone", "aside")])
    for chosen in ({}, {"jobIds": ",".join(jobs.ids)}):
        batches = batch_reader({**options_of(queue), **chosen}, SCHEMAS["jobs"]).read(OpenSlice(Slice()))
        assert sum(batch.num_rows for batch in batches) >= least
    for chunks in (read_jobs(queue.handle), read_ids(queue.handle, jobs.ids)):
        assert sum(len(list(chunk.jobs("q"))) for chunk in chunks) >= least
    assert sum(len(queue.page(state)) for state in queue.counts()) >= least


@each_damage
def test_a_damaged_job_does_not_affect_others(queue: BullQueue, damages: list[Damage]) -> None:
    jobs = add_damaged(queue, damages)
    check_read(queue, jobs)
    ran = Counter[str]()

    def processor(job: RunningJob) -> Any:
        ran[job.id] += 1
        return [job.data, job.progress, job.priority, job.opts, job.name]

    with OurWorker(queue.handle, processor, chunk_size=7):
        wait_until(lambda: not left(queue), "all jobs to end")
    for job_id, damage in jobs.bad.items():
        check_end(queue, damage, job_id)
    check_read(queue, jobs)
    done = {job.id: job for job in queue.page("completed")}
    assert jobs.healthy <= done.keys()
    assert all(done[job_id].attempts_made in (0, 1) and ran[job_id] == 1 for job_id in jobs.healthy)


@all_damages
def test_a_damaged_job_passes_all_states_without_blocking_others(queue: BullQueue, damages: list[Damage]) -> None:
    jobs = add_damaged(queue, damages, delay=1, attempts=3, backoff=1)
    wait_until(lambda: promote_due(queue.handle).moved == 0 and queue.counts()["delayed"] == 0, "all to be promoted")
    assert work(queue.handle, WorkSettings("dead"), None, len(jobs.ids)).claimed >= len(jobs.healthy)
    rescue_all(queue.handle, jobs.ids)
    assert queue.counts()["active"] == 0
    failed_once = Counter[str]()

    def processor(job: RunningJob) -> None:
        failed_once[job.id] += 1
        if failed_once[job.id] == 1:
            raise ValueError("the first attempt")

    # As with Node's workers, the next attempt of such a job is never due.
    late = [job_id for job_id, damage in jobs.bad.items() if damage.name == LATE]

    def has_ended() -> bool:
        promote_due(queue.handle)
        return left(queue) == len(late)

    with OurWorker(queue.handle, processor, chunk_size=7):
        wait_until(has_ended, "all jobs to end")
    assert jobs.healthy <= {job.id for job in queue.page("completed")}
    assert {failed_once[job_id] for job_id in jobs.healthy} == {2}
    for job_id, damage in jobs.bad.items():
        if damage.outcome in ("gone", "aside"):
            check_end(queue, damage, job_id)
        else:
            # Without its options a job has no second attempt.
            assert end_of(queue, job_id)[0] in (("delayed",) if job_id in late else ENDED), damage
    check_read(queue, jobs)


@all_damages
@pytest.mark.parametrize("outcome", ["completed", "failed", "returned"])
def test_a_job_that_is_damaged_while_it_runs_does_not_affect_its_chunk(
    queue: BullQueue, damages: list[Damage], outcome: str
) -> None:
    jobs = add(queue, damages)
    claim = work(queue.handle, WorkSettings("slot"), None, len(jobs.ids))
    jobs.damage(queue)
    outcomes = Outcomes(claim.token)
    for job in claim.jobs:
        if outcome == "completed":
            outcomes.complete(job.id, "1")
        elif outcome == "failed":
            outcomes.failed.append(failure(queue.handle.dialect, job, "bad", stack="trace"))
        else:
            outcomes.returned.append(job.id)
    lost = work(queue.handle, WorkSettings("slot"), outcomes, 0).lost
    assert {one.id for one in lost} <= jobs.bad.keys()
    state = "wait" if outcome == "returned" else outcome
    assert {job.id for job in queue.page(state)} >= jobs.healthy
    active = {job.id for job in queue.page("active")}
    assert active == {job_id for job_id, damage in jobs.bad.items() if damage.name == HELD}


@all_damages
def test_a_claiming_query_reads_damaged_jobs(queue: BullQueue, damages: list[Damage]) -> None:
    jobs = add_damaged(queue, damages)
    ledger = ClaimLedger(queue.handle, "reader")
    portions = [taken.portion for taken in ledger.claim(WorkSettings("reader"), len(jobs.ids))]
    batches = [claim_batch(queue.handle, portion.token, unpack_claimed(portion.packed)) for portion in portions]
    rows = {row["id"]: row for row in pa.Table.from_batches(batches).to_pylist()}
    assert rows.keys() >= jobs.healthy
    assert all(rows[job_id]["deferredFailure"] is None for job_id in jobs.healthy)
    for job_id, damage in jobs.bad.items():
        if damage.outcome in ("gone", "aside"):
            assert job_id not in rows, damage
        elif job_id not in rows:
            assert end_of(queue, job_id) == ("failed", NO_PAYLOAD.strip("^$")), damage
        else:
            fails = damage.outcome != "runs" and not damage.name.startswith("data")
            assert (rows[job_id]["deferredFailure"] is not None) == fails, damage
            assert [job.id for job in read_claimed(queue.handle, [job_id])] == [job_id], damage


@all_damages
def test_a_damaged_job_can_be_promoted_and_retried_manually(queue: BullQueue, damages: list[Damage]) -> None:
    jobs = add_damaged(queue, damages, delay=HOUR)
    delayed = len(jobs.ids)
    hashes = {i for i in jobs.bad if queue.handle.connection.call("TYPE", queue.handle.keys.job(i)) == b"hash"}
    for job_id, damage in jobs.bad.items():
        if damage.outcome != "gone":
            queue.promote(job_id)
            delayed -= 1
            assert queue.counts()["delayed"] == delayed, damage

    def processor(job: RunningJob) -> None:
        # Huge attempts would never end.
        raise UnrecoverableError("bad")

    with OurWorker(queue.handle, processor):
        wait_until(lambda: left(queue) == delayed, "all promoted jobs to end")
    failed = {job.id for job in queue.page("failed")}
    assert failed >= {job_id for job_id in hashes if jobs.bad[job_id].name != "name missing"}
    for job_id in failed & hashes:
        queue.retry(job_id)
    assert queue.counts()["failed"] == len(failed - hashes)
    assert left(queue) == delayed + len(failed & hashes)


@all_damages
def test_a_damaged_job_can_be_removed_with_all_others(queue: BullQueue, damages: list[Damage]) -> None:
    add_damaged(queue, damages)
    queue.drain()
    assert left(queue) == 0
    jobs = add_damaged(queue, damages)
    removed = [job_id for job_id, damage in jobs.bad.items() if damage.name != HELD]
    for job_id in removed:
        before = left(queue)
        queue.remove(job_id)
        assert left(queue) == before - 1, jobs.bad[job_id]
    add_damaged(queue, damages, timestamp=1_700_000_000_000)
    queue.clean(0, 0, "wait")
    assert left(queue) == 3, "two locked ones, and one with a timestamp in the future"
    add_damaged(queue, damages)
    queue.obliterate(force=True)
    assert left(queue) == 0


@all_damages
def test_a_queue_with_a_damaged_job_can_be_opened(queue: BullQueue, damages: list[Damage], client: Redis) -> None:
    keys, url = queue.handle.keys, queue.handle.connection.settings.url
    for damage in damages:
        if (queue.protocol, damage.name) == ("bull-1", "name no UTF-8"):
            continue  # A job with a name is one of Bull 3.
        ids = queue.add_many(NewJob({"n": n}) for n in range(3)).ids
        damage.apply(queue.handle, ids[-1])
        for protocol in ("auto", queue.protocol):
            with BullQueue("q", url=url, prefix=keys.prefix, protocol=protocol) as opened:
                assert (opened.protocol, opened.counts()["wait"]) == (queue.protocol, len(ids)), damage
        client.delete(*client.scan_iter(match=f"{keys.base}*", count=1000))


@each_dialect
def test_damaged_limits_do_not_stop_a_slot_with_a_limiter(queue: BullQueue, client: Redis) -> None:
    limited = WorkSettings("slot", limiter=Limiter(100, HOUR))
    for damage in QUEUE_DAMAGES:
        if queue.protocol in damage.dialects:
            job_id = queue.add({})
            client.delete(queue.handle.keys["limiter"])
            damage.apply(queue.handle, job_id)
            assert [job.id for job in work(queue.handle, limited, None, 1).jobs] == [job_id], damage


@each_dialect
def test_a_delayed_job_with_an_invalid_time_does_not_block_others(queue: BullQueue) -> None:
    scores = ["inf", "-inf", str(2**60), "-5"]
    for score in scores:
        queue.add({}, delay=1)
        queue.handle.connection.call("ZADD", queue.handle.keys["delayed"], score, queue.add({}, delay=HOUR))
    queue.add({}, delay=1)
    wait_until(lambda: promote_due(queue.handle).now and queue.counts()["wait"] > len(scores), "the others' promotion")
    assert len(work(queue.handle, WorkSettings("slot"), None, 20).jobs) > len(scores)
    assert promote_due(queue.handle).next_due is None


def test_prevent_parsing_data_keeps_the_payload_as_text(redis_url: str, prefix: str) -> None:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bull") as queue:
        job_id = queue.add({"n": 1}, opts={"preventParsingData": True})
        queue.handle.connection.call("HSET", queue.handle.keys.job(job_id), "data", "no JSON")
        with OurWorker(queue.handle, lambda job: job.data):
            wait_until(lambda: queue.counts()["completed"] == 1, "the job to end")
        job = queue.job(job_id)
        assert (job.returnvalue, job.data) == ("no JSON", "no JSON")
