"""Follow-ups are added by the call that settles their job: both or neither, and as BullQueue.add adds them.

Every test with a queue runs twice: with each script sent once, and with each script sent again as if its reply had been
lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BooleanType, DataType, IntegerType, StringType, StructType

from spark_bull.core.errors import DelayedError, DialectError, JobLockLost, OptionError
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.outcomes import MAX_FOLLOW_UPS, Claim, Outcomes
from spark_bull.core.model.read_jobs import FlowJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import Connection
from spark_bull.run.job.job_runner import JobFunction, Result
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.work.settle.plan import plan_settle
from spark_bull.spark.work.settle.task import settle_task
from tests.conformance.written import struct
from tests.support.dump import Window, difference, dump, normalise, normalise_messages
from tests.support.traffic import published
from tests.support.wait import wait_until
from tests.support.work_bench import WorkBench, only_bullmq, options_of
from tests.support.worker import OurWorker

HOUR_MS = 3_600_000


def other(bench: WorkBench, name: str) -> BullQueue:
    """Another queue of the same prefix and dialect."""
    handle = bench.handle
    return BullQueue(name, url=handle.connection.settings.url, prefix=handle.keys.prefix, protocol=handle.dialect.name)


def payloads(bench: WorkBench, name: str = "q", state: str = "wait") -> list[Any]:
    """The payloads of a state of a queue, the next job first."""
    with other(bench, name) as queue:
        return [job.data for job in queue.page(state)]


def running(bench: WorkBench, claim: Claim) -> list[RunningJob]:
    return [RunningJob(job, bench.handle, claim.token) for job in claim.jobs]


def only_job(bench: WorkBench) -> tuple[Claim, RunningJob]:
    """A claim of one new job, and that job."""
    bench.add()
    claim = bench.claim()
    (job,) = running(bench, claim)
    return claim, job


def outcomes_of(bench: WorkBench, claim: Claim, jobs: Sequence[RunningJob], error: Exception | None = None) -> Outcomes:
    outcomes = Outcomes(claim.token)
    for job in jobs:
        OutcomePolicy().record(outcomes, bench.handle.dialect, Result(job, 1, error), claim.now)
    return outcomes


def complete_with(bench: WorkBench, *follow_ups: NewJob, queue: str) -> None:
    """Completes a new job that is followed by these in another queue."""
    claim, job = only_job(bench)
    for one in follow_ups:
        job.then(one, queue=queue)
    bench.work(outcomes_of(bench, claim, [job]))


# processors


def in_kind(kind: str, function: Callable[[RunningJob], Any]) -> JobFunction:
    async def coroutine(job: RunningJob) -> Any:
        await asyncio.sleep(0)
        return function(job)

    return coroutine if kind == "coroutine" else function


@pytest.mark.parametrize(
    ("bench", "kind"),
    [("bull-1", "main thread"), ("bull", "threads"), ("bullmq", "main thread"), ("bullmq", "coroutine")],
    indirect=["bench"],
)
def test_the_attempt_that_settles_a_job_adds_jobs_to_its_own_queue_and_to_another_one(
    bench: WorkBench, kind: str
) -> None:
    def processor(job: RunningJob) -> None:
        if "of" in job.data:
            return
        attempt = job.attempts_made + 1
        for on, queue in (("success", None), ("success", "next"), ("failure", "next")):
            job.then(NewJob({"of": job.data["n"], "attempt": attempt, "on": on}), queue=queue, on=on)
        if attempt < 3 or job.data["n"] % 2:
            raise ValueError("again")

    bench.add(6, attempts=3)
    with OurWorker(bench.handle, in_kind(kind, processor), chunk_size=4, concurrency=1 if kind == "main thread" else 3):
        wait_until(lambda: bench.counts() == {"completed": 6, "failed": 3}, "all jobs to end")
    own = [job.data for job in bench.queue.page("completed") if "of" in job.data]
    added = sorted((data["of"], data["attempt"], data["on"]) for data in own)
    assert added == [(n, 3, "success") for n in (0, 2, 4)]
    added = sorted((data["of"], data["attempt"], data["on"]) for data in payloads(bench, "next"))
    assert added == [(n, 3, "failure" if n % 2 else "success") for n in range(6)]


def test_a_job_that_is_delayed_has_no_follow_ups(bench: WorkBench) -> None:
    claim, job = only_job(bench)
    for on in ("success", "failure"):
        job.then(NewJob({}), on=on)
    bench.work(outcomes_of(bench, claim, [job], DelayedError(HOUR_MS)))
    assert bench.counts() == {"delayed": 1}


def test_a_job_can_be_followed_by_one_with_its_own_id(bench: WorkBench) -> None:
    """The settled job is removed before the follow-up is added."""
    [job_id] = bench.queue.add_many([NewJob({"n": 1}, job_id="same", remove_on_complete=True)]).ids
    claim = bench.claim()
    (job,) = running(bench, claim)
    job.then(NewJob({"n": 2}, job_id="same"))
    outcomes = Outcomes(claim.token, follow_ups=list(job.follow_ups))
    outcomes.complete(job_id, "1", {"count": 0})
    again = bench.work(outcomes, limit=1)
    assert [(one.id, one.data) for one in again.jobs] == [("same", '{"n":2}')]


@only_bullmq
def test_a_parent_that_cannot_complete_has_the_follow_ups_of_a_failure(bench: WorkBench) -> None:
    [job_id] = bench.add()

    def processor(job: RunningJob) -> Any:
        if job.id != job_id:
            return None
        bench.client.sadd(f"{bench.handle.keys.job(job.id)}:dependencies", "missing")
        for on in ("success", "failure"):
            job.then(NewJob({"on": on}), queue="next", on=on)
        return 1

    with OurWorker(bench.handle, processor):
        wait_until(lambda: bench.counts() == {"failed": 1}, "the parent to fail")
    assert payloads(bench, "next") == [{"on": "failure"}]


# follow-ups that are children


@only_bullmq
def test_a_follow_up_that_is_a_sibling_runs_before_the_parent(bench: WorkBench) -> None:
    flow = bench.queue.add_flow(FlowJob({"n": 0}, children=(FlowJob({"n": 1}),)))

    def processor(job: RunningJob) -> Any:
        if job.data["n"] == 1:
            job.then(NewJob({"n": 2}, parent={"queue": job.queue, "id": flow.id}))
        return job.data["n"], len(job.children_values())

    with OurWorker(bench.handle, processor):
        wait_until(lambda: sum(bench.counts().get(s, 0) for s in ("completed", "failed")) == 3, "all jobs to end")
    ended = [(job.state, job.parsed("returnvalue")) for job in bench.queue.page("completed")]
    assert sorted(ended) == [("completed", [0, 2]), ("completed", [1, 0]), ("completed", [2, 0])]


@only_bullmq
def test_the_parent_of_a_follow_up_is_checked_before_the_job_is_settled(bench: WorkBench) -> None:
    [parent, own, child] = bench.queue.add_many([NewJob({}), NewJob({}), NewJob({}, job_id="child")]).ids
    bench.queue.add({}, job_id="taken", parent={"queue": "q", "id": parent})
    jobs = {job.id: job for job in running(bench, bench.claim())}
    refused = [
        (NewJob({}, parent={"queue": "q", "id": "gone"}), "but it is missing"),
        (NewJob({}, job_id="taken", parent={"queue": "q", "id": child}), "but it exists and has one"),
        (NewJob({}, parent={"queue": "q", "id": own}), "another parent than the job itself"),
        (NewJob({}, parent={"queue": "q", "id": parent}, deduplication="x"), "deduplicat"),
    ]
    for job, message in refused:
        with pytest.raises(OptionError, match=message):
            jobs[own].then(job)
        with pytest.raises(OptionError, match=message):
            jobs[own].then(job, queue="q")
    assert jobs[own].follow_ups == ()


@only_bullmq
def test_a_follow_up_whose_parent_is_removed_before_the_job_is_settled_is_added_without_it(bench: WorkBench) -> None:
    [parent] = bench.add(delay=HOUR_MS)
    claim, job = only_job(bench)
    job.then(NewJob({"n": 2}, parent={"queue": "q", "id": parent}))
    bench.queue.remove(parent)
    bench.work(outcomes_of(bench, claim, [job]))
    (following,) = bench.queue.page("wait")
    assert (following.data, following.parent_key) == ({"n": 2}, None)


# dead letters


def test_a_job_that_fails_for_good_takes_its_origin_along_when_it_is_copied_or_moved(bench: WorkBench) -> None:
    ids = bench.add(4, attempts=2)
    opts = bench.queue.job(ids[0]).opts
    policy = OutcomePolicy(dead_letter_queue="dead", retry={"LookupError": 0})

    def processor(job: RunningJob) -> None:
        if job.data["n"] == 0:
            raise LookupError("no such thing")
        if job.data["n"] == 1:
            raise ValueError('no {such} "thing"')
        if job.data["n"] == 2 and job.attempts_made == 0:
            raise ValueError("works later")

    def origin(n: int, reason: str, attempts: int) -> dict[str, Any]:
        return {"queue": "q", "id": ids[n], "failedReason": reason, "attemptsMade": attempts}

    with OurWorker(bench.handle, processor, policy=policy):
        wait_until(lambda: bench.counts() == {"completed": 2, "failed": 2}, "all jobs to end")
    with other(bench, "dead") as dead, other(bench, "moved") as moved:
        copies = {job.data["n"]: job for job in dead.page("wait")}
        origins = {0: origin(0, "no such thing", 1), 1: origin(1, 'no {such} "thing"', 2)}
        assert {n: job.opts["deadLetter"] for n, job in copies.items()} == origins
        assert {job.name for job in copies.values()} == {bench.queue.job(ids[0]).name}
        for job_id in ids[1:]:
            bench.queue.move(job_id, to="moved")
        found = {job.data["n"]: job.opts for job in moved.page("wait")}
        assert found == {1: {**opts, "deadLetter": origins[1]}, 2: opts, 3: opts}
        dead.move(copies[1].id, to="q")
        assert dead.counts()["wait"] == 1
    assert [job.data["n"] for job in bench.queue.page("wait")] == [1]


# rejected outcomes


@pytest.mark.parametrize("loss", ["locked by another", "unlocked", "removed", "damaged"])
def test_a_job_whose_outcome_is_rejected_has_no_follow_ups(bench: WorkBench, loss: str) -> None:
    lost, kept = bench.add(2)
    claim = bench.claim()
    jobs = running(bench, claim)
    for job in jobs:
        job.then(NewJob({"of": job.id}))
        job.then(NewJob({"of": job.id}), queue="next")
    keys, client = bench.handle.keys, bench.client
    match loss:
        case "locked by another":
            client.set(keys.lock(lost), "another")
        case "unlocked":
            client.delete(keys.lock(lost))
        case "removed":
            client.delete(keys.job(lost))
        case "damaged":
            client.set(keys.job(lost), "no hash")
    answer = bench.work(outcomes_of(bench, claim, jobs))
    assert [one.id for one in answer.lost] == [lost]
    assert payloads(bench) == payloads(bench, "next") == [{"of": kept}]


def test_an_attempt_that_has_lost_its_lock_is_told_so(bench: WorkBench) -> None:
    _, job = only_job(bench)
    job.lose_lock()
    with pytest.raises(JobLockLost, match="end this attempt"):
        job.then(NewJob({}))


# the same keys


def jobs_of_all_kinds(bench: WorkBench) -> list[NewJob]:
    jobs = [
        NewJob({"n": 1}),
        NewJob("text é", delay=HOUR_MS),
        NewJob({"n": 3}, lifo=True),
        NewJob(None, job_id="own"),
        NewJob({"n": 5}, job_id="own"),
        NewJob([6], attempts=3, backoff=1000),
        NewJob({"n": 7}, remove_on_complete=True, remove_on_fail=True),
        NewJob({"n": 8}, delay=2 * HOUR_MS, timestamp=1_600_000_000_000),
    ]
    if bench.handle.dialect.name != "bull-1":
        jobs += [NewJob({"n": n}, "mail", priority=p) for n, p in enumerate([3, 1, 2, 1], 9)]
        jobs += [NewJob({"n": 13}, "mail", priority=1, delay=HOUR_MS)]
        jobs += [NewJob({"n": n}, deduplication="simple") for n in (14, 15)]
    if bench.bullmq:
        rule = {"id": "throttled", "ttl": HOUR_MS, "extend": True}
        jobs += [NewJob({"n": n}, delay=HOUR_MS, deduplication=rule) for n in (16, 17)]
    return jobs


def use(bench: WorkBench, queue: BullQueue) -> None:
    queue.add_many([NewJob({"before": n}) for n in range(3)] + [NewJob({"later": 1}, delay=HOUR_MS)])
    if bench.handle.dialect.name != "bull-1":
        queue.add({"before": 4}, priority=2)


def pause(bench: WorkBench, queue: BullQueue) -> None:
    use(bench, queue)
    queue.pause()


@pytest.mark.parametrize(("prepare", "at_once"), [(lambda bench, queue: None, False), (use, True), (pause, False)])
def test_follow_ups_leave_the_same_keys_as_jobs_that_are_added(
    bench: WorkBench, prepare: Callable[[WorkBench, BullQueue], None], at_once: bool
) -> None:
    """Also with the same messages. In one call of add or settle, or each in its own one."""
    jobs = jobs_of_all_kinds(bench)
    groups = [jobs] if at_once else [[job] for job in jobs]
    prefix = bench.handle.keys.prefix
    names = [f"{side}-{prefix}" for side in ("left", "right")]  # Bull 1 publishes outside the prefix.
    taken = Window()
    with other(bench, names[0]) as left, other(bench, names[1]) as right:
        for queue in (left, right):
            prepare(bench, queue)
        with published(bench.client, prefix, left.name) as left_messages:
            for group in groups:
                left.add_many(group)
        with published(bench.client, prefix, right.name) as right_messages:
            for group in groups:
                complete_with(bench, *group, queue=right.name)
    dumps = [dump(bench.client, prefix, name) for name in names]
    assert difference(*(normalise(one, taken) for one in dumps)) == []
    messages = [
        normalise_messages(heard, prefix, one, taken)
        for heard, one in zip((left_messages, right_messages), dumps, strict=True)
    ]
    # The messages of pauses and of other calls are the same by construction; the messages of jobs are compared.
    assert difference(*messages) == []


@only_bullmq
@pytest.mark.parametrize(("version", "where"), [("5", "paused"), ("6", "wait")])
def test_follow_ups_of_a_paused_queue_wait_where_its_version_keeps_them(
    bench: WorkBench, version: str, where: str
) -> None:
    with other(bench, "next") as following:
        bench.client.hset(following.handle.keys["meta"], "version", f"bullmq:{version}.0.0")
        following.pause()
        complete_with(bench, NewJob({}), queue="next")
        assert bench.client.llen(following.handle.keys[where]) == 1


# bounds


@pytest.mark.parametrize(("bench", "concurrency"), [("bull", 1), ("bullmq", 5)], indirect=["bench"])
def test_a_worker_settles_many_follow_ups_in_several_calls(
    bench: WorkBench, monkeypatch: pytest.MonkeyPatch, concurrency: int
) -> None:
    sent: list[int] = []
    script = Connection.script

    def observed(self: Connection, name: str, keys: dict[str, Any], args: dict[str, Any] | None = None) -> Any:
        if name.endswith("/work_and_add") and args:
            groups = msgpack.unpackb(args["outcomes"], raw=False)["follow_ups"]
            sent.append(sum(len(group["of"]) for group in groups))
        return script(self, name, keys, args)

    monkeypatch.setattr(Connection, "script", observed)
    each = MAX_FOLLOW_UPS - 10

    def processor(job: RunningJob) -> None:
        for n in range(each):
            job.then(NewJob({"of": job.data["n"], "n": n}), queue="next")

    bench.add(5)
    with OurWorker(bench.handle, processor, chunk_size=5, concurrency=concurrency):
        wait_until(lambda: bench.counts() == {"completed": 5}, "all jobs to end")
    assert max(sent) < 2 * MAX_FOLLOW_UPS
    with other(bench, "next") as following:
        assert following.counts()["wait"] == 5 * each


def test_the_keys_of_other_queues_are_declared(bench: WorkBench, monkeypatch: pytest.MonkeyPatch) -> None:
    declared: list[str] = []
    run = QueueHandle.run

    def observed(self: QueueHandle, verb: str, args: Any = None, **keys: Any) -> Any:
        declared.extend(keys.get("touched") or ())
        return run(self, verb, args, **keys)

    monkeypatch.setattr(QueueHandle, "run", observed)
    complete_with(bench, NewJob({}), NewJob({}, delay=HOUR_MS), queue="next")
    base = f"{bench.handle.keys.prefix}:next:"
    keys = {key.decode() for key in bench.client.scan_iter(f"{base}*")}
    assert keys - set(declared) == {f"{base}1", f"{base}2"}


@pytest.mark.parametrize("bench", ["bull"], indirect=True)
def test_prioritised_follow_ups_do_not_search_a_long_list_one_by_one(bench: WorkBench) -> None:
    """Bull keeps them among the waiting jobs, where LINSERT searches the place of each."""

    def searches() -> int:
        return int(bench.client.info("commandstats").get("cmdstat_linsert", {}).get("calls", 0))

    with other(bench, "next") as following:
        following.add_many([NewJob({"n": -1})] * 3_000)
        before = searches()
        complete_with(bench, *(NewJob({"n": n}, priority=1 + n % 2) for n in range(MAX_FOLLOW_UPS)), queue="next")
        assert searches() == before
        first = [job.data["n"] for job in following.page("wait", 0, MAX_FOLLOW_UPS)]
    assert first == [*range(0, MAX_FOLLOW_UPS, 2), *range(1, MAX_FOLLOW_UPS, 2), -1]


# queues


def test_a_queue_of_another_dialect_is_refused(bench: WorkBench, open_queue: Callable[..., BullQueue]) -> None:
    open_queue("next", {"bull-1": "bullmq", "bull": "bull-1", "bullmq": "bull"}[bench.queue.protocol]).add({})
    _, job = only_job(bench)
    with pytest.raises(DialectError, match="expected queue next to speak"):
        job.then(NewJob({}), queue="next")
    assert job.follow_ups == ()


# the column `then`


TEXT, NUMBER = StringType(), IntegerType()


def settle(
    bench: WorkBench, fields: StructType, claim: Claim, then: list[Any], errors: dict[int, str] | None = None
) -> Counter[str]:
    """Settles the jobs of a claim as rows with follow-ups; errors: by the number of the row."""
    count = len(claim.jobs)
    rows: dict[str, list[Any]] = {"id": [job.id for job in claim.jobs], "token": [claim.token] * count}
    rows |= {"returnvalue": ["1"] * count, "error": [(errors or {}).get(n) for n in range(count)], "then": then}
    schema = struct(id=TEXT, token=TEXT, returnvalue=TEXT, error=TEXT, then=ArrayType(fields))
    plan = plan_settle({**options_of(bench.queue), "chunkSize": "4"}, schema)
    batch = pa.RecordBatch.from_pydict(rows, schema=to_arrow_schema(schema))
    # A task that runs again, as Spark lets it after a failure, adds nothing.
    counts, again = (Counter[str](settle_task(plan, iter([batch])).counts) for _ in range(2))
    assert not +again - Counter({"lost": count})
    return +counts


def test_rows_with_outcomes_have_follow_ups(bench: WorkBench) -> None:
    bench.add(7, attempts=2)
    claim = bench.claim()

    def then(n: int) -> list[Any] | None:
        by_default = {"data": {"of": n}, "queue": None, "on": None, "delay": None}
        failure = {"data": {"of": n, "failed": True}, "queue": "next", "on": "failure", "delay": None}
        later = {"data": {"of": n}, "queue": "next", "on": "success", "delay": HOUR_MS}
        return None if n == 5 else [] if n == 6 else [by_default, None, failure, later]

    fields = struct(data=struct(of=NUMBER, failed=BooleanType()), queue=TEXT, on=TEXT, delay=NUMBER)
    assert settle(bench, fields, claim, [then(n) for n in range(7)], {4: "bad"}) == {"completed": 6, "retried": 1}
    follow_ups = [data for data in payloads(bench) if "of" in data]
    assert sorted(data["of"] for data in follow_ups) == [0, 1, 2, 3]
    assert all(data.keys() == {"of"} for data in follow_ups)
    assert payloads(bench, "next") == []
    assert sorted(data["of"] for data in payloads(bench, "next", "delayed")) == [0, 1, 2, 3]


#: Follow-ups of a job that is settled with others: what is wrong, and the reason for which the job fails.
BAD_FOLLOW_UPS: list[tuple[StructType, dict[str, Any], str]] = [
    (struct(data=TEXT, delay=NUMBER), {"data": "1", "delay": -1}, "expected `delay` to be ms >= 0"),
    (struct(data=TEXT, on=TEXT), {"data": "1", "on": "always"}, "expected `on` to be success or failure"),
    (struct(data=TEXT, queue=TEXT), {"data": "1", "queue": ""}, "name of a queue"),
    (struct(data=TEXT), {"data": "{"}, "JSON"),
    (struct(data=TEXT), {"data": None}, "got NULL"),
    (
        struct(data=TEXT, parent=struct(queue=TEXT, id=TEXT)),
        {"data": "1", "parent": {"queue": "q", "id": "gone"}},
        "row 1, column `parent`: expected the parent of the job",
    ),
]


@only_bullmq
@pytest.mark.parametrize(("fields", "bad", "reason"), BAD_FOLLOW_UPS)
def test_a_row_with_an_invalid_follow_up_fails_alone(
    bench: WorkBench, fields: StructType, bad: dict[str, Any], reason: str
) -> None:
    ids = bench.add(3)
    [parent] = bench.add(delay=HOUR_MS)
    good = {**dict.fromkeys(bad), "data": "1"} | ({"parent": {"queue": "q", "id": parent}} if "parent" in bad else {})
    assert settle(bench, fields, bench.claim(), [[good], [good, bad], [good]]) == {"completed": 2, "failed": 1}
    (failed,) = bench.queue.page("failed")
    assert failed.id == ids[1]
    assert str(failed.failed_reason).startswith("column `then`: ")
    assert reason in str(failed.failed_reason)
    added = bench.queue.page("wait")
    assert [job.data for job in added] == [1, 1]
    assert {job.parent_key for job in added} == {bench.handle.keys.job(parent) if "parent" in bad else None}


def test_rows_with_many_follow_ups_are_settled_in_several_calls(bench: WorkBench) -> None:
    bench.add(4)
    claim = bench.claim()
    counts = [MAX_FOLLOW_UPS, MAX_FOLLOW_UPS + 1, 1, MAX_FOLLOW_UPS]
    then = [[{"data": str(n)}] * count for n, count in enumerate(counts, 1)]
    assert settle(bench, struct(data=TEXT), claim, then) == {"completed": 3, "failed": 1}
    (failed,) = bench.queue.page("failed")
    assert f"at most {MAX_FOLLOW_UPS} follow-ups of a job" in str(failed.failed_reason)
    assert Counter(payloads(bench)) == {1: MAX_FOLLOW_UPS, 3: 1, 4: MAX_FOLLOW_UPS}


def test_a_column_of_a_wrong_type_is_refused_before_any_task(redis_url: str) -> None:
    wrong: list[tuple[DataType, str]] = [
        (TEXT, "expected column `then` to be ARRAY<STRUCT<data, …>>, got: STRING"),
        (ArrayType(TEXT), "expected column `then` to be ARRAY<STRUCT<data, …>>, got: ARRAY<STRING>"),
        (ArrayType(struct(queue=TEXT)), "column `then`: expected a field `data`, got: `queue`"),
        (
            ArrayType(struct(data=TEXT, on=NUMBER)),
            "expected the field `on` of column `then` to be STRING, got: INT",
        ),
        (
            ArrayType(struct(data=TEXT, dealy=NUMBER)),
            r"column `then`: unknown column `dealy` \(did you mean `delay`",
        ),
        (ArrayType(struct(data=TEXT, delay=TEXT)), "column `then`: expected column `delay` to be an integer"),
    ]
    for kind, message in wrong:
        schema = struct(id=TEXT, token=TEXT, returnvalue=TEXT, then=kind)
        with pytest.raises(OptionError, match=message):
            plan_settle({"url": redis_url, "queue": "q", "protocol": "bullmq"}, schema)
