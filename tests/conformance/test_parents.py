"""Parents of flows, as processors and operators see them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from redis import Redis

from spark_bull.core.errors import (
    DialectError,
    JobLockLost,
    JobMissing,
    OptionError,
    ParentError,
    WaitingForChildren,
)
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.outcomes import Claim, Failed, Outcomes
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.manage.manage import remove_unprocessed_children
from spark_bull.run.job.job_runner import Result
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.work.udf_runner import UdfRunner
from tests.support.jobs import HOUR
from tests.support.without_spark import ClaimingQuery
from tests.support.work_bench import WorkBench
from tests.support.worker import end_all

only_bull = pytest.mark.parametrize("bench", ["bull"], indirect=True)


@pytest.fixture
def bench(
    request: pytest.FixtureRequest, twice: bool, client: Redis, open_queue: Callable[..., BullQueue]
) -> WorkBench:
    return WorkBench(open_queue(protocol=getattr(request, "param", "bullmq")), client, twice)


def add_child(bench: WorkBench, parent_id: str, child_id: str = "c") -> None:
    """Adds a child to a job, without going through Node."""
    bench.queue.add({}, job_id=child_id)
    make_child(bench, child_id, parent_id)


def make_child(bench: WorkBench, child: str, parent: str, rule: str = "") -> None:
    """Makes a job that exists a child. rule: what becomes of the parent when it fails, as BullMQ stores it."""
    keys = bench.handle.keys
    stored = {"id": parent, "queueKey": f"{keys.prefix}:q"} | ({rule: True} if rule else {})
    bench.client.hset(keys.job(child), mapping={"parentKey": keys.job(parent), "parent": json.dumps(stored)})
    bench.client.sadd(keys.children(parent), keys.job(child))


def outcomes_in_order(claim: Claim, ends: Sequence[tuple[str, str | None]]) -> Outcomes:
    """Outcomes of jobs, recorded in this order: completed, or failed with a reason."""
    outcomes = Outcomes(claim.token)
    for job_id, reason in ends:
        if reason is None:
            outcomes.complete(job_id, "7")
        else:
            outcomes.add_failure(Failed(job_id, reason, "[]", None, 1))
    return outcomes


# results of children


def test_the_values_of_many_children_are_read_in_parts_up_to_a_limit(bench: WorkBench) -> None:
    values = {f"{bench.handle.keys.prefix}:c:{n}": str(n) for n in range(3_000)}
    bench.client.hset(bench.handle.keys.children_values("p"), mapping=values)
    assert bench.queue.children_values("p") == {child: int(value) for child, value in values.items()}
    with pytest.raises(OptionError, match=r"at most 2,999 values of children of job p of queue q, found 3,000"):
        bench.queue.children_values("p", limit=2_999)
    # A value that is not JSON is a text.
    bench.client.hset(bench.handle.keys.children_values("o"), mapping={"bull:c:1": "{oops", "bull:c:2": b"\xff"})
    assert bench.queue.children_values("o") == {"bull:c:1": "{oops", "bull:c:2": "�"}


@only_bull
def test_jobs_of_bull_have_no_children(bench: WorkBench) -> None:
    bench.add()
    for call in (
        lambda: bench.queue.children_values("1"),
        lambda: bench.queue.children_failures("1"),
        lambda: bench.queue.remove_child_dependency("1"),
        lambda: bench.queue.remove_unprocessed_children("1"),
        lambda: running(bench).add_child(NewJob({})),
    ):
        with pytest.raises(DialectError, match="expected a queue of BullMQ"):
            call()


# WaitingForChildren


def waiting(bench: WorkBench, claim: Claim) -> Outcomes:
    """The outcomes of jobs whose processors have raised WaitingForChildren."""
    outcomes = Outcomes(claim.token)
    for job in claim.jobs:
        result = Result(RunningJob(job, bench.handle), None, WaitingForChildren())
        OutcomePolicy().record(outcomes, bench.handle.dialect, result, claim.now)
    return outcomes


def test_a_worker_that_has_lost_the_lock_adds_no_child_and_does_not_make_the_job_wait(bench: WorkBench) -> None:
    (parent,) = bench.add()
    claim = bench.claim()
    job = RunningJob(claim.jobs[0], bench.handle, claim.token)
    job.lose_lock()
    with pytest.raises(JobLockLost):
        job.add_child(NewJob({}))
    assert bench.counts() == {"active": 1}
    add_child(bench, parent)
    bench.client.set(bench.handle.keys.lock(parent), "another worker")
    settled = bench.work(waiting(bench, claim))
    assert [(one.id, one.why) for one in settled.lost] == [(parent, "owner")]
    assert bench.counts() == {"active": 1, "wait": 1}


@only_bull
def test_an_attempt_that_waits_for_children_fails_in_bull(bench: WorkBench) -> None:
    (job_id,) = bench.add()

    def processor(job: RunningJob) -> None:
        raise WaitingForChildren

    end_all(bench.queue, processor)
    job = bench.queue.job(job_id)
    assert job.state == "failed"
    assert "expected a queue of BullMQ" in (job.failed_reason or "")


def settle_rows(bench: WorkBench, *rows: dict[str, Any]) -> Counter[str]:
    """Settles rows as a streaming query does, in a task that runs twice."""
    query = ClaimingQuery(bench.queue)
    counts = query.settle(*rows)
    query.settle(*rows)
    return counts


def test_rows_of_a_stream_wait_for_their_children(bench: WorkBench) -> None:
    ids = bench.add(3, attempts=5)
    token = bench.claim().token
    add_child(bench, ids[0])
    bench.client.zadd(f"{bench.handle.keys.job(ids[1])}:unsuccessful", {"a child": 1})
    rows = [{"id": job_id, "token": token, "waitForChildren": True} for job_id in ids]
    assert settle_rows(bench, *rows) == {"returned": 2, "failed": 1}
    assert bench.counts() == {"waiting-children": 1, "failed": 1, "wait": 2}
    (failed,) = bench.queue.page("failed")
    assert failed.failed_reason == f"Job {ids[1]} has a failed child and cannot complete"


@only_bull
def test_rows_of_a_stream_that_wait_for_children_fail_in_bull(bench: WorkBench) -> None:
    ids, token = bench.add(3), bench.claim().token
    postponed = ({"waitForChildren": True}, {"waitForChildren": True, "delay": 0}, {"delay": HOUR})
    rows = [{"id": job_id, "token": token, **how} for job_id, how in zip(ids, postponed, strict=True)]
    assert settle_rows(bench, *rows) == {"failed": 2, "returned": 1}
    assert bench.counts() == {"failed": 2, "delayed": 1}
    for job_id in ids[:2]:
        job = bench.queue.job(job_id)
        assert "expected a queue of BullMQ" in (job.failed_reason or "")


# job.add_child


def running(bench: WorkBench) -> RunningJob:
    claim = bench.claim(1)
    return RunningJob(claim.jobs[0], bench.handle, claim.token)


def test_a_child_with_an_id_is_added_once_by_several_attempts(bench: WorkBench) -> None:
    (parent,) = bench.add()
    job = running(bench)
    assert [job.add_child(NewJob({}, job_id="c")) for _ in range(2)] == ["c", "c"]
    assert bench.counts() == {"active": 1, "wait": 1}
    assert bench.client.smembers(bench.handle.keys.children(parent)) == {bench.handle.keys.job("c").encode()}


def test_a_child_that_cannot_be_added_is_an_error_and_adds_nothing(bench: WorkBench) -> None:
    bench.add()
    job = running(bench)
    with pytest.raises(OptionError, match="expected `job` to be a NewJob"):
        job.add_child({"to": "ada"})
    with pytest.raises(OptionError, match="expected a job without `parent`"):
        job.add_child(NewJob({}, parent={"queue": "q", "id": "7"}))
    with pytest.raises(OptionError, match=r"expected `parent.onFailure` to be one of wait, "):
        job.add_child(NewJob({}), on_failure="explode")
    with pytest.raises(OptionError, match="without ':'"):
        job.add_child(NewJob({}), queue="a:b")
    bench.client.delete(bench.handle.keys.job(job.id))
    with pytest.raises(ParentError, match="expected the parent of the job to exist"):
        job.add_child(NewJob({}))
    assert bench.counts() == {"active": 1}


# removal of children


def add_tree(bench: WorkBench, children: int, grandchildren: int) -> int:
    """Adds a parent `p` that waits for its children, and they for theirs; returns the number of its descendants."""
    keys = bench.handle.keys
    bench.queue.add({}, job_id="p")
    for n in range(children):
        add_child(bench, "p", f"c{n}")
        for m in range(grandchildren):
            add_child(bench, f"c{n}", f"g{n}-{m}")
    bench.client.delete(keys["wait"])
    waiting = ["p", *(f"c{n}" for n in range(children if grandchildren else 0))]
    bench.client.zadd(keys["waiting_children"], dict.fromkeys(waiting, 1))
    return children * (grandchildren + 1)


def test_a_large_tree_is_removed_by_several_calls_of_bounded_size(bench: WorkBench) -> None:
    descendants = add_tree(bench, 5, 7)
    removed = remove_unprocessed_children(bench.handle, "p", chunk_size=3)
    assert removed == descendants
    assert bench.counts() == {"wait": 1}
    assert not [name for kind in "cg" for name in bench.client.keys(f"{bench.handle.keys.base}{kind}*")]


def test_many_locked_children_stay_and_do_not_keep_the_others(bench: WorkBench) -> None:
    add_tree(bench, 600, 0)
    keys = bench.handle.keys
    for n in range(0, 600, 2):
        bench.client.set(keys.lock(f"c{n}"), "t")
    assert remove_unprocessed_children(bench.handle, "p", chunk_size=20) == 300
    assert bench.client.scard(keys.children("p")) == 300
    assert bench.counts() == {"waiting-children": 1}


def test_a_callback_goes_on_waiting_for_the_jobs_that_its_write_has_not_added_yet(bench: WorkBench) -> None:
    add_tree(bench, 2, 0)
    keys = bench.handle.keys
    bench.client.sadd(keys.children("p"), keys.pending("p"))
    assert bench.queue.remove_unprocessed_children("p") == 2
    assert bench.counts() == {"waiting-children": 1}


def test_a_cycle_of_children_is_removed_as_by_node(bench: WorkBench) -> None:
    for child, parent in (("a", "p"), ("b", "a"), ("p", "b")):
        add_child(bench, parent, child)
    assert bench.queue.remove_unprocessed_children("p") == 3
    assert bench.counts() == {}


def test_a_dependency_of_a_job_without_an_unfinished_parent_cannot_be_removed(bench: WorkBench) -> None:
    (job_id,) = bench.add()
    assert bench.queue.remove_child_dependency(job_id) is False
    add_child(bench, "gone", "c")
    with pytest.raises(JobMissing, match=r"expected the parent \S+:q:gone of job c in queue q, found none"):
        bench.queue.remove_child_dependency("c")
    for call in (bench.queue.remove_child_dependency, bench.queue.remove_unprocessed_children):
        with pytest.raises(JobMissing, match="expected a job none in queue q"):
            call("none")


# a child and its parent in one chunk


def test_a_claim_ends_before_a_job_whose_child_it_has_claimed(bench: WorkBench) -> None:
    (child, other, parent, last) = bench.add(4)
    make_child(bench, child, parent)
    claim = bench.claim()
    assert ([job.id for job in claim.jobs], claim.more) == ([child, other], True)
    assert [job.parent_key for job in claim.jobs] == [bench.handle.keys.job(parent), None]
    bench.work(outcomes_in_order(claim, [(child, None), (other, None)]))
    assert [job.id for job in bench.claim().jobs] == [parent, last]


def test_prioritized_parents_stay_where_they_are_while_their_children_run(bench: WorkBench) -> None:
    (child,) = bench.add()
    (parent,) = bench.add(priority=1)
    make_child(bench, child, parent)
    assert [job.id for job in bench.claim().jobs] == [child]
    assert [job.id for job in bench.claim().jobs] == [parent]


def test_jobs_settled_in_one_call_end_in_the_order_in_which_they_were_recorded(bench: WorkBench) -> None:
    (child, failing, parent, grandparent) = bench.add(4)
    claim = bench.claim()
    make_child(bench, child, parent)
    make_child(bench, failing, parent, "idof")
    make_child(bench, parent, grandparent)
    ends = [(child, None), (failing, "oops"), (parent, None), (grandparent, None)]
    assert bench.work(outcomes_in_order(claim, ends)).lost == []
    assert bench.counts() == {"completed": 3, "failed": 1}
    assert bench.queue.children_values(parent) == {bench.handle.keys.job(child): 7}
    assert bench.queue.children_values(grandparent) == {bench.handle.keys.job(parent): 7}


@pytest.mark.parametrize(
    ("rule", "parent_first", "why"),
    [
        ("", True, "children"),
        ("idof", True, "children"),
        ("fpof", True, "children"),
        ("fpof", False, "failed_children"),
    ],
)
def test_a_parent_ended_before_its_child_or_with_a_failed_one_does_not_complete(
    bench: WorkBench, rule: str, parent_first: bool, why: str
) -> None:
    (child, parent) = bench.add(2)
    claim = bench.claim()
    make_child(bench, child, parent, rule)
    ends = [(parent, None), (child, "oops" if rule else None)]
    settled = bench.work(outcomes_in_order(claim, ends if parent_first else ends[::-1]))
    assert [(one.id, one.why) for one in settled.lost] == [(parent, why)]
    assert bench.counts() == {"active": 1, "failed" if rule else "completed": 1}
    assert bench.locks([parent]) == [True]


def test_a_udf_gets_a_parent_after_its_child_was_settled(bench: WorkBench) -> None:
    """The slot fills its chunk by further claims; the first one ends before the parent."""
    (child, parent) = bench.add(2)
    make_child(bench, child, parent)
    values: list[dict[str, object]] = []

    def function(n: int) -> int:
        values.append(bench.queue.children_values(parent))
        return n

    runner = UdfRunner(function, "row", pa.struct([pa.field("n", pa.int64())]), pa.int64())
    end_all(bench.queue, runner=runner, chunk_size=10)
    assert values == [{}, {bench.handle.keys.job(child): 0}]
