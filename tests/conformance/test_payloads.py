"""Encrypted and stored payloads and results, in every dialect: whoever has the key opens them, whichever verb it is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, StringType, StructType
from redis import Redis

from spark_bull.core.errors import OptionError, PayloadUnreadable
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.read_jobs import Change, FlowJob
from spark_bull.core.payloads import objects
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import REMOVE_SIZE, QueueHandle
from spark_bull.core.queue.jobs.objects import swept_ids
from spark_bull.core.queue.manage import leftovers as sweeping
from spark_bull.core.queue.manage.leftovers import Swept
from spark_bull.core.queue.work.claim import unpack_claimed
from spark_bull.core.queue.work.claim_ledger import ClaimLedger
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.call.call import call_plan
from spark_bull.spark.call.task import PARTITION
from spark_bull.spark.staging.commit import discard_stages
from spark_bull.spark.work.claim_batch import claim_batch
from tests.conformance.written import struct, written
from tests.support.wait import wait_until
from tests.support.without_spark import Sink
from tests.support.work_bench import DIALECTS, options_of
from tests.support.worker import OurWorker, end_all

LARGE = {"text": "private " * 100}
SMALL = {"to": "private"}
Open = Callable[..., BullQueue]


@pytest.fixture(params=["bullmq"])
def open_queue(request: pytest.FixtureRequest, redis_url: str, prefix: str, tmp_path: Path) -> Iterator[Open]:
    """Opens the queue `q` with a key and a folder, or with other arguments."""
    for kid in "ab":
        (tmp_path / kid).write_bytes(f"-{kid}".encode() * 16)
    keys = {"encrypt_with": f"a=file:{tmp_path / 'a'}", "offload_to": str(tmp_path / "jobs"), "offload_above": "600b"}

    def opened(name: str = "q", **given: Any) -> BullQueue:
        return BullQueue(name, url=redis_url, prefix=prefix, protocol=request.param, **(given or keys))

    return opened


each_dialect = pytest.mark.parametrize("open_queue", DIALECTS, indirect=True)


def stored(folder: Path) -> list[Path]:
    return [path for path in (folder / "jobs").rglob("*") if path.is_file()]


def everything(client: Redis, queue: BullQueue, folder: Path) -> str:
    """All that Redis and the folder have of a queue."""
    keys = client.keys(f"{queue.handle.keys.base}*")
    found = [client.dump(key) for key in keys] + [path.read_bytes() for path in stored(folder)]
    return " ".join(one.decode("latin-1") for one in found if one)


def echo(job: RunningJob) -> Any:
    return {"echo": job.data}


@each_dialect
def test_payloads_and_results_are_private_and_open_with_the_key(
    open_queue: Open, client: Redis, tmp_path: Path
) -> None:
    queue = open_queue()
    small, large = queue.add_many([NewJob(SMALL), NewJob(LARGE)]).ids
    assert [job.data for job in queue.page("wait")] == [SMALL, LARGE]
    assert len(stored(tmp_path)) == 1
    end_all(queue, echo, chunk_size=10)
    for job_id, payload in ((small, SMALL), (large, LARGE)):
        job = queue.job(job_id)
        assert (job.data, job.returnvalue) == (payload, {"echo": payload})
        assert queue.wait(job_id) == {"echo": payload}
    assert len(stored(tmp_path)) == 2
    assert "private" not in everything(client, queue, tmp_path)
    # Without the key, what is there is JSON.
    shown = {job.id: job for job in open_queue(scan_keys=True).page("completed")}
    assert [[*shown[job_id].data] for job_id in (small, large)] == [["$sealed"], ["$stored"]]
    assert [[*shown[job_id].returnvalue] for job_id in (small, large)] == [["$sealed"], ["$stored"]]


def test_several_keys_open_and_the_first_one_seals(open_queue: Open, tmp_path: Path) -> None:
    old, a, b = open_queue(), f"a=file:{tmp_path / 'a'}", f"b=file:{tmp_path / 'b'}"
    new = open_queue(encrypt_with=[b, a])
    first, second = old.add(SMALL), new.add(SMALL)
    assert [job.data for job in new.page("wait")] == [SMALL, SMALL]
    with pytest.raises(
        PayloadUnreadable, match=f"`data` of job {second} of queue q to be sealed with one of the keys a"
    ):
        old.page("wait")
    with pytest.raises(PayloadUnreadable, match=f"`data` of job {first} of queue q to open with key 'a', it does not"):
        open_queue(encrypt_with=f"a=file:{tmp_path / 'b'}").job(first)


def test_a_worker_fails_only_the_jobs_that_it_cannot_open(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    large, *_ = queue.add_many([NewJob(LARGE), NewJob(SMALL)]).ids
    other = open_queue(encrypt_with=f"b=file:{tmp_path / 'b'}").add(SMALL)
    for path in stored(tmp_path):
        path.unlink()
    end_all(queue, echo, chunk_size=10)
    reasons = {job.id: str(job.failed_reason) for job in open_queue(scan_keys=True).page("failed")}
    assert reasons.keys() == {large, other}
    assert re.match(f"expected `data` of job {large} of queue q to be the object .* which is gone", reasons[large])
    assert "sealed with one of the keys a, got key 'b'" in reasons[other]


def test_an_object_that_cannot_be_read_now_fails_an_attempt_of_its_job_alone(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    large = queue.add(LARGE, attempts=2)
    (path,) = stored(tmp_path)
    content = path.read_bytes()
    path.unlink()
    # Not readable, also by root.
    path.mkdir()
    small = queue.add(SMALL, attempts=2)
    errors: list[str] = []

    def mend(job: RunningJob) -> Any:
        if job.id == small:
            return None
        try:
            return job.data
        except PayloadUnreadable as error:
            errors.append(str(error))
            path.rmdir()
            path.write_bytes(content)
            raise

    end_all(queue, mend, chunk_size=10)
    (error,) = errors
    assert re.search("the object .*, which could not be read from `offloadTo`: IsADirectoryError", error)
    assert {job.id for job in queue.page("completed")} == {large, small}


def test_all_ways_to_add_and_change_payloads_seal_them(open_queue: Open, client: Redis, tmp_path: Path) -> None:
    queue, kids = open_queue(), open_queue("kids")
    flow = queue.add_flow(FlowJob(LARGE, children=[FlowJob(SMALL, queue="kids"), FlowJob(LARGE, queue="kids")]))
    end_all(kids, echo, chunk_size=10)
    queue.job(flow.id)

    def parent(job: RunningJob) -> Any:
        if job.id == flow.id:
            job.then(NewJob(SMALL, job_id="then"))
            job.then(NewJob(LARGE, job_id="then-kid"), queue="kids")
            job.update_data({**SMALL, "n": 2})
            return sorted(map(json.dumps, job.children_values().values()))
        return job.data

    end_all(queue, parent, chunk_size=10)
    done = queue.job(flow.id)
    assert done.returnvalue == sorted(json.dumps({"echo": one}) for one in (SMALL, LARGE))
    assert done.data == {**SMALL, "n": 2}
    assert queue.job("then").returnvalue == SMALL
    assert kids.job("then-kid").data == LARGE
    assert sorted(str(one.value) for one in queue.dependencies(flow.id)) == sorted(
        json.dumps({"echo": one}, separators=(",", ":")) for one in (SMALL, LARGE)
    )
    (changed,) = kids.manage([Change("then-kid", "update", data={"new": "private"})])
    assert changed.outcome == "done"
    kids.complete("then-kid", {"by hand": "private"})
    by_hand = kids.job("then-kid")
    assert (by_hand.data, by_hand.returnvalue) == ({"new": "private"}, {"by hand": "private"})
    queue.upsert_scheduler("tick", every=3_600_000, data=SMALL, start_date=2_000_000_000_000)
    assert queue.job(queue.run_scheduler("tick")).data == SMALL
    assert "private" not in everything(client, queue, tmp_path) + everything(client, kids, tmp_path)


def test_a_job_that_was_moved_to_another_queue_does_not_open_there(open_queue: Open) -> None:
    queue = open_queue()
    queue.add(SMALL, job_id="one")
    queue.move("one", "other")
    with pytest.raises(PayloadUnreadable, match="it was sealed for another queue or field"):
        open_queue("other").job("one")


def test_objects_are_deleted_with_the_jobs_that_verbs_remove(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    ids = queue.add_many([NewJob(LARGE) for _ in range(6)]).ids
    queue.remove(ids[0])
    changes = [Change(ids[1], "remove"), Change("gone", "remove")]
    assert [one.outcome for one in queue.manage(changes)] == ["done", "missing"]
    assert len(stored(tmp_path)) == 4
    assert [job.data for job in queue.page("wait")] == [LARGE] * 4


@each_dialect
def test_clean_and_drain_look_at_the_jobs_of_one_call_at_a_time(
    open_queue: Open, client: Redis, tmp_path: Path
) -> None:
    queue = open_queue()
    handle, waiting = queue.handle, 6 * REMOVE_SIZE
    ids = queue.add_many([NewJob(LARGE) if number % 6 == 0 else NewJob({}) for number in range(waiting)]).ids
    first = swept_ids(handle, handle.dialect.state_key("wait"), b"0")
    assert sorted(int(one) for one in first) == sorted(int(one) for one in ids[: 5 * REMOVE_SIZE])
    # Locked jobs stay, and the position moves on behind them.
    locked = ids[::12]
    for job_id in locked:
        client.set(handle.keys.lock(job_id), "t")
    assert len(queue.clean(state="wait", limit=3)) == 3
    assert len(stored(tmp_path)) == REMOVE_SIZE
    assert len(queue.clean(state="wait")) == waiting - 3 - len(locked)
    assert len(stored(tmp_path)) == len(locked)
    assert queue.drain() == len(locked)
    assert stored(tmp_path) == []
    count = REMOVE_SIZE + 20
    queue.add_many([NewJob(LARGE) for _ in range(count)])
    end_all(queue, lambda _: 1, chunk_size=10)
    assert len(queue.clean(limit=2)) == 2
    assert len(stored(tmp_path)) == count - 2
    assert len(queue.clean()) == count - 2
    assert stored(tmp_path) == []


def test_a_claiming_query_reads_jobs_again_whose_objects_cannot_be_read_now(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    large = queue.add(LARGE)
    (path,) = stored(tmp_path)
    (taken,) = ClaimLedger(queue.handle, "reader").claim(WorkSettings("reader"), 1)
    token, claimed = taken.portion.token, unpack_claimed(taken.portion.packed)
    content = path.read_bytes()
    path.unlink()
    (row,) = claim_batch(queue.handle, token, claimed).to_pylist()
    assert "which is gone" in row["deferredFailure"]
    path.mkdir()
    with pytest.raises(PayloadUnreadable, match="could not be read from `offloadTo`: IsADirectoryError"):
        claim_batch(queue.handle, token, claimed)
    path.rmdir()
    path.write_bytes(content)
    (row,) = claim_batch(queue.handle, token, claimed).to_pylist()
    assert (row["id"], json.loads(row["data"]), row["deferredFailure"]) == (large, LARGE, None)


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_a_sweep_deletes_the_objects_that_no_job_has(open_queue: Open, tmp_path: Path, state: str) -> None:
    queue, kids, other = open_queue(), open_queue("kids"), open_queue("other")
    other.add(LARGE)
    queue.add_many([NewJob(LARGE), NewJob(LARGE, remove_on_complete=True, remove_on_fail=True), NewJob(SMALL)])
    queue.add_flow(FlowJob(LARGE, children=[FlowJob(SMALL, remove_on_complete=True), FlowJob(LARGE, queue="kids")]))
    (tmp_path / "jobs" / "x.part").write_text("of another program")

    def end(job: RunningJob) -> Any:
        if state == "failed":
            raise ValueError("bad")
        return LARGE

    with OurWorker(queue.handle, end, chunk_size=10):
        wait_until(lambda: not queue.counts()["wait"] and not queue.counts()["active"], "all jobs to end")
    before = len(stored(tmp_path))
    assert queue.sweep_objects() == Swept(before - 3, 0)
    swept = queue.sweep_objects(older_than_ms=0)
    # Its own payload, and its result.
    assert swept.deleted == (2 if state == "completed" else 1)
    assert queue.sweep_objects(older_than_ms=0) == Swept(swept.kept, 0)
    assert kids.sweep_objects(older_than_ms=0).deleted == 0
    jobs = [job for one in (queue, kids, other) for name in one.counts() for job in one.page(name)]
    assert all(job.data in (LARGE, SMALL) for job in jobs)
    if state == "completed":
        parent = queue.page("waiting-children")[0]
        # The child is gone, its result is still with the parent.
        assert list(queue.children_values(parent.id).values()) == [LARGE]


def test_the_result_of_a_removed_child_stays_for_its_parent(open_queue: Open, tmp_path: Path) -> None:
    queue, kids = open_queue(), open_queue("kids")
    children = [FlowJob(SMALL, queue="kids", job_id=name) for name in ("removed", "cleaned")]
    parent = queue.add_flow(FlowJob(SMALL, children=[*children, FlowJob(SMALL, queue="open")]))
    end_all(kids, lambda _: LARGE, chunk_size=10)
    kids.remove("removed")
    assert kids.clean() == ["cleaned"]
    kids.add(SMALL)
    assert kids.sweep_objects(older_than_ms=0) == Swept(2, 0)
    assert list(queue.children_values(parent.id).values()) == [LARGE, LARGE]
    queue.remove(parent.id)
    assert kids.sweep_objects(older_than_ms=0) == Swept(0, 2)


def test_a_sweep_that_can_not_know_all_jobs_is_refused(
    open_queue: Open, client: Redis, prefix: str, tmp_path: Path
) -> None:
    open_queue().add(LARGE)
    for name in ("other", "q{0}"):
        with pytest.raises(OptionError, match=f"expected a queue that exists for .*no queue {re.escape(name)} "):
            open_queue(name).sweep_objects(older_than_ms=0)
    with pytest.raises(OptionError, match="expected `offload_to`, the folder of the objects, for a sweep, got none"):
        open_queue(scan_keys=True).sweep_objects()
    layout = {"count": 1, "most": 2, "epoch": 1, "writes": 0, "servers": 2, "dialect": "bullmq"}
    client.hset(QueueKeys("q{0}", prefix)["shard_layout"], mapping=layout)
    for name in ("q", "q{0}"):
        with pytest.raises(OptionError, match=r"expected a queue on one server for a sweep, got .*, which is on 2"):
            open_queue(name).sweep_objects()
    assert len(stored(tmp_path)) == 1


ROWS = struct(data=StringType())
PARENTS = struct(data=StringType(), children=ArrayType(struct(queue=StringType(), data=StringType())))


def sink_of(there: BullQueue, folder: Path, schema: StructType = ROWS, **options: str) -> Sink:
    """A write of Spark to the queue `q`."""
    kept = {"offloadTo": str(folder / "jobs"), "offloadAbove": "600b", "encryptWith": f"a=file:{folder / 'a'}"}
    return Sink(options_of(there) | kept | options, schema)


@pytest.mark.parametrize("root", ["q", "root"])
def test_a_sweep_keeps_the_objects_of_a_write_that_is_not_finished(open_queue: Open, tmp_path: Path, root: str) -> None:
    """Also of a child, whose chunk is staged for another queue."""
    queue = open_queue()
    queue.add(SMALL)
    sink = sink_of(queue, tmp_path, PARENTS, queue=root)
    sink.task([{"data": "{}", "children": [{"queue": "q", "data": json.dumps(LARGE)}]}])
    assert queue.sweep_objects(older_than_ms=0) == Swept(1, 0)
    sink.commit()
    assert queue.sweep_objects(older_than_ms=0) == Swept(1, 0)
    assert [job.data for job in queue.page("wait")] == [SMALL, LARGE]


def test_a_sweep_keeps_objects_that_are_written_again_meanwhile(
    open_queue: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, used = open_queue(), sweeping._used
    queue.add(SMALL)
    identity = {"txnAppId": "app", "txnVersion": "1"}
    failed = sink_of(queue, tmp_path, **identity)
    failed.task([{"data": json.dumps(LARGE)}])
    discard_stages(failed.plan, failed.messages)
    lost = queue.handle.sealed("data", json.dumps(LARGE), "lost")
    for path in stored(tmp_path):
        os.utime(path, (0, 0))

    def used_before_others_write(handle: QueueHandle) -> set[str]:
        found = used(handle)
        again = sink_of(queue, tmp_path, **identity)
        again.task([{"data": json.dumps(LARGE)}])
        again.commit()
        assert queue.handle.sealed("data", json.dumps(LARGE), "lost") == lost
        return found

    monkeypatch.setattr(sweeping, "_used", used_before_others_write)
    # That of the write that failed: the one that repeats it has an object of its own.
    assert queue.sweep_objects(older_than_ms=0).deleted == 1
    assert [job.data for job in queue.page("wait")] == [SMALL, LARGE]
    assert queue.handle.opened("data", "lost", lost) == json.dumps(LARGE)


def test_a_job_that_a_repeated_task_adds_again_has_an_object_of_its_own(open_queue: Open, tmp_path: Path) -> None:
    queue = open_queue()
    sink = sink_of(queue, tmp_path, delivery="at-least-once")
    for _ in range(2):
        sink.attempt([{"data": json.dumps(LARGE)}])
    first, second = queue.page("wait")
    queue.remove(first.id)
    assert queue.job(second.id) == second


def test_the_stored_payload_of_another_job_is_refused(open_queue: Open) -> None:
    """In all ways in which it may reach a job, as removing one of the two would destroy the payload of the other."""
    queue, plain = open_queue(), open_queue(scan_keys=True)
    owner = queue.add(LARGE)
    job = plain.job(owner)
    shown: dict[str, Any] = job.data
    assert [*shown] == ["$stored"]
    other = plain.add(SMALL)
    refused = "expected `data` without a member `.sealed` or `.stored`, which mark the payload of another job"

    def follow_up(running: RunningJob) -> None:
        running.then(NewJob(shown))

    ways: list[Callable[[], Any]] = [
        lambda: plain.add(shown),
        lambda: plain.add_flow(FlowJob({}, children=[FlowJob(shown)])),
        lambda: plain.upsert_scheduler("s", every=1_000, data=shown),
        lambda: list(plain.manage([Change(other, "update", data=shown)])),
        lambda: written(options_of(plain), ROWS, [{"data": json.dumps(shown)}]),
    ]
    for way in ways:
        with pytest.raises(OptionError, match=refused):
            way()
    queue.remove(owner)
    end_all(plain, follow_up, chunk_size=10)
    (failed,) = plain.page("failed")
    assert re.search(refused, str(failed.failed_reason))


def test_a_call_whose_results_cannot_be_read_now_reads_them_when_its_task_is_repeated(
    open_queue: Open, tmp_path: Path, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, read, ran, fails = open_queue(), objects.read, list[str](), iter([True] * 3 + [True, False])
    batch = pa.record_batch([[json.dumps(SMALL)], pa.array([0])], ["data", PARTITION])
    given = {"url": redis_url, "prefix": prefix, "protocol": "bullmq", "offload_to": str(tmp_path / "jobs")}
    given |= {"encrypt_with": f"a=file:{tmp_path / 'a'}"}
    plan = call_plan(ROWS, "q", **given)

    def read_or_fail(root: str, path: str) -> bytes | None:
        if next(fails):
            raise OSError("busy")
        return read(root, path)

    def large(job: RunningJob) -> Any:
        ran.append(job.id)
        return LARGE

    monkeypatch.setattr("spark_bull.core.payloads.policy.PAUSES_S", (0, 0))
    monkeypatch.setattr(objects, "read", read_or_fail)
    with OurWorker(queue.handle, large, chunk_size=10):
        with pytest.raises(PayloadUnreadable, match="could not be read from `offloadTo`: OSError"):
            list(plan(iter([batch])))
        # Now the error is a momentary one.
        (found,) = [row for rows in plan(iter([batch])) for row in rows.to_pylist()]
    assert (json.loads(found["result"]), found["error"]) == (LARGE, None)
    assert ran == [found["jobId"]]
