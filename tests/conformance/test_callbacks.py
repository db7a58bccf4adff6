"""A job that runs once, when all jobs of a write have ended: the options `onFinish` and `onFailure`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull.core.errors import ConnectionLost, DialectError, OptionError
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch import roll_forward
from spark_bull.spark.staging import commit
from tests.conformance.written import written
from tests.support.without_spark import Sink
from tests.support.work_bench import WorkBench, completed, failed_for, only_bullmq

pytestmark = only_bullmq

DELIVERIES = ("exactly-once", "at-least-once")
each_delivery = pytest.mark.parametrize("delivery", DELIVERIES, indirect=True)
ON_FINISH = {"queue": "report", "name": "sum", "data": {"day": 1}, "opts": {"priority": 3, "attempts": 2}}
ROWS = StructType().add("n", IntegerType())
QUEUE_ROWS = StructType().add("n", IntegerType()).add("queue", StringType())


@pytest.fixture
def delivery(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "exactly-once")


@pytest.fixture
def options(bench: WorkBench, redis_url: str, delivery: str) -> Callable[..., dict[str, str]]:
    def options(**given: Any) -> dict[str, str]:
        """None leaves an option out."""
        base = {"url": redis_url, "prefix": bench.handle.keys.prefix, "queue": "q", "chunkSize": "2"}
        given = {"onFinish": ON_FINISH, "delivery": delivery, **base, **given}
        texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in given.items()}
        return {name: text for name, text in texts.items() if text != "null"}

    return options


@pytest.fixture
def report(open_queue: Callable[..., BullQueue]) -> BullQueue:
    """The queue of the callback."""
    return open_queue("report", "bullmq")


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in numbers]


def callback(report: BullQueue) -> Job:
    """The only callback there is."""
    states = [state for state, count in report.counts().items() if count]
    (job,) = (job for state in states for job in report.page(state))
    return job


def complete_all(bench: WorkBench) -> int:
    claim = bench.claim(100)
    bench.work(completed(claim))
    return len(claim.jobs)


@each_delivery
def test_the_callback_starts_after_the_last_job(bench: WorkBench, options: Any, report: BullQueue) -> None:
    written(options(), ROWS, rows(0, 1, 2), rows(3, 4))
    bench.work(completed(bench.claim(4)))
    assert callback(report).state == "waiting-children"
    assert complete_all(bench) == 1
    assert callback(report).state == "prioritized"


def test_children_that_end_before_the_last_one_is_added_do_not_start_it(
    bench: WorkBench, options: Any, report: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least once: while Spark still computes. Exactly once: while the driver still adds jobs."""
    sink = Sink(options(delivery="at-least-once"), ROWS)
    sink.task(rows(0, 1, 2))
    assert complete_all(bench) == 3
    assert callback(report).state == "waiting-children"
    sink.task(rows(3))
    assert complete_all(bench) == 1
    sink.commit()
    assert callback(report).state == "prioritized"
    report.obliterate(force=True)

    ended: list[int] = []
    sink = Sink(options(), ROWS)
    sink.task(rows(0, 1, 2, 3, 4))

    def work(done: int, total: int) -> None:
        ended.append(complete_all(bench))
        if sum(ended) < total:
            assert report.counts()["prioritized"] == 0

    monkeypatch.setattr(commit, "_log_progress", work)
    sink.commit()
    assert sum(ended) == 5
    assert callback(report).state == "prioritized"


@each_delivery
@pytest.mark.parametrize(
    ("policy", "after_failure", "after_all"),
    [
        ("wait", "waiting-children", "waiting-children"),
        ("ignore", "waiting-children", "prioritized"),
        ("remove", "waiting-children", "prioritized"),
        ("fail", "prioritized", "prioritized"),
        ("continue", "prioritized", "prioritized"),
    ],
)
def test_a_job_that_fails_does_to_the_callback_what_on_failure_says(
    bench: WorkBench, options: Any, report: BullQueue, policy: str, after_failure: str, after_all: str
) -> None:
    written(options(onFailure=policy), ROWS, rows(0, 1))
    bench.work(failed_for(bench.claim(1), "no"))
    job = callback(report)
    assert job.state == after_failure
    complete_all(bench)
    assert callback(report).state == after_all
    deferred = bench.client.hget(report.handle.keys.job(job.id), "defa")
    assert bool(deferred) == (policy == "fail")
    failures = report.children_failures(job.id)
    assert list(failures.values()) == (["no"] if policy in ("ignore", "continue") else [])


@each_delivery
def test_the_callback_of_a_write_without_rows_starts_at_once(bench: WorkBench, options: Any, report: BullQueue) -> None:
    written(options(), ROWS, [])
    assert callback(report).state == "prioritized"
    report.obliterate(force=True)
    written(options(queue=None, jobColumns="queue"), QUEUE_ROWS)
    assert callback(report).state == "prioritized"


@each_delivery
def test_one_callback_waits_for_the_jobs_of_all_queues(bench: WorkBench, options: Any, report: BullQueue) -> None:
    several = options(queue=None, jobColumns="queue")
    written(several, QUEUE_ROWS, [{"n": 0, "queue": "q"}, {"n": 1, "queue": "report"}], [{"n": 2, "queue": "q"}])
    assert report.counts()["waiting-children"] == 1
    other = WorkBench(report, bench.client, bench.twice)
    assert complete_all(other) == 1
    assert complete_all(bench) == 2
    assert report.counts()["prioritized"] == 1


def test_an_aborted_write_leaves_a_callback_only_if_it_has_added_jobs(
    bench: WorkBench, options: Any, report: BullQueue, own_log: pytest.LogCaptureFixture
) -> None:
    sink = Sink(options(), ROWS)
    sink.task(rows(0, 1, 2))
    sink.abort()
    sink = Sink(options(delivery="at-least-once"), ROWS)
    sink.abort()
    assert not any(report.counts().values())
    assert not own_log.records

    sink = Sink(options(delivery="at-least-once"), ROWS)
    sink.task(rows(0))
    sink.abort()
    assert complete_all(bench) == 1
    job = callback(report)
    assert job.state == "waiting-children"
    assert f"job {job.id} of queue report" in own_log.text


@pytest.mark.parametrize(
    ("delivery", "numbers"), [("exactly-once", (0, 1)), ("at-least-once", ())], indirect=["delivery"]
)
def test_an_abort_after_the_registration_leaves_the_callback(
    bench: WorkBench,
    options: Any,
    report: BullQueue,
    monkeypatch: pytest.MonkeyPatch,
    own_log: pytest.LogCaptureFixture,
    numbers: tuple[int, ...],
) -> None:
    """Spark aborts a write whose commit has failed; any process can finish it."""
    sink = Sink(options(), ROWS)
    sink.task(rows(*numbers))

    def lose(*call: Any, **keys: Any) -> None:
        raise ConnectionLost("gone")

    with monkeypatch.context() as patched:
        patched.setattr(roll_forward, "close_callback", lose)
        with pytest.raises(ConnectionLost, match="don't run this write again"):
            sink.commit()
    sink.abort()
    assert not own_log.records
    bench.queue.recover()
    assert complete_all(bench) == len(numbers)
    assert callback(report).state == "prioritized"


@each_delivery
def test_repeated_writes_of_one_version_have_a_callback_for_each_queue(
    bench: WorkBench, options: Any, report: BullQueue
) -> None:
    """Each queue has its own watermark: an application may write to several ones with the same version."""
    for queue in ("q", "q2"):
        version = options(queue=queue, txnAppId="app", txnVersion="7")
        # The first run dies before its commit.
        Sink(version, ROWS).task(rows(0, 1))
        for _ in range(2):
            written(version, ROWS, rows(0, 1))
    assert report.counts()["waiting-children"] == 2
    assert complete_all(bench) == 2
    assert (report.counts()["waiting-children"], report.counts()["prioritized"]) == (1, 1)


def test_jobs_are_added_when_their_callback_is_gone(
    bench: WorkBench, options: Any, report: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can start, and be removed, before the last job is added, if it does not wait for jobs that fail."""
    sink = Sink(options(onFailure="continue"), ROWS)
    sink.task(rows(0, 1, 2, 3, 4))

    def remove(done: int, total: int) -> None:
        for job in report.page("waiting-children"):
            report.remove(job.id, with_children=False)

    monkeypatch.setattr(commit, "_log_progress", remove)
    sink.commit()
    (record,) = bench.queue.writes()
    assert (record.state, record.added) == ("finished", 5)
    assert complete_all(bench) == 5
    assert not any(report.counts().values())


def test_a_job_that_exists_becomes_a_child(bench: WorkBench, options: Any, report: BullQueue) -> None:
    """As in BullMQ; one that has completed is a child that has ended."""
    schema = StructType().add("n", IntegerType()).add("jobId", StringType())
    given = [{"n": n, "jobId": f"job-{n}"} for n in range(3)]
    for n in range(2):
        bench.queue.add({"n": n}, job_id=f"job-{n}")
    bench.work(completed(bench.claim(1)))
    written(options(jobColumns="jobId"), schema, given)
    (record,) = bench.queue.writes()
    assert (record.added, record.duplicates) == (1, 2)
    assert list(report.children_values(callback(report).id)) == [bench.handle.keys.job("job-0")]
    assert complete_all(bench) == 2
    assert callback(report).state == "prioritized"


WRONG: Sequence[tuple[dict[str, Any], str]] = [
    ({"onFinish": "[]"}, "expected `onFinish` to be a JSON object"),
    ({"onFinish": {"quene": "x"}}, r"unknown member `quene` of `onFinish` \(did you mean `queue`"),
    ({"onFinish": {"queue": ""}}, r"expected `onFinish\.queue` to be the name of a queue, got: ''"),
    ({"onFinish": {"queue": "a:b"}}, "expected `queue` without ':'"),
    ({"onFinish": {"name": 7}}, r"expected `onFinish\.name` to be a text"),
    ({"onFinish": {"opts": []}}, r"expected `onFinish\.opts` to be a JSON object"),
    ({"onFinish": {"opts": {"jobId": "x"}}}, r"expected `onFinish\.opts` without `jobId`"),
    ({"onFinish": {"opts": {"deduplication": {"id": "x"}}}}, r"expected `onFinish\.opts` without `deduplication`"),
    ({"onFinish": {"opts": {"priority": -1}}}, "option `onFinish`: .*expected `priority`"),
    ({"onFailure": "explode"}, "expected `onFailure` to be one of wait, ignore, fail, continue, remove"),
    ({"uniqueBy": "n"}, "one of `onFinish` and deduplication ids"),
    ({"deduplication": "x"}, "one of `onFinish` and deduplication ids"),
]


def test_a_wrong_option_is_an_error_before_anything_is_written(bench: WorkBench, options: Any) -> None:
    for given, message in WRONG:
        with pytest.raises(OptionError, match=message):
            Sink(options(**given), ROWS)
    with pytest.raises(OptionError, match="expected `onFinish`, `sequenceBy` or a column `dependsOn` with `onFailure`"):
        Sink(options(onFailure="fail", onFinish=None), ROWS)
    assert not list(bench.client.scan_iter(match=f"{bench.handle.keys.prefix}:*"))


@pytest.mark.parametrize("queue", ["q", "report"])
def test_queues_of_bull_are_refused(bench: WorkBench, options: Any, redis_url: str, queue: str) -> None:
    """The queue of the write, and the queue of the callback."""
    with BullQueue(queue, url=redis_url, prefix=bench.handle.keys.prefix, protocol="bull") as bull:
        bull.add({})
    refused = "expected no `onFinish` .*: jobs of bull have no children and no parents; .* of BullMQ"
    with pytest.raises(DialectError, match=refused):
        Sink(options(), ROWS)
    sink = Sink(options(queue=None, jobColumns="queue", onFinish={"queue": "other"}), QUEUE_ROWS)
    with pytest.raises(DialectError, match=refused):
        sink.task([{"n": 0, "queue": queue}])


@each_delivery
def test_a_row_can_have_its_own_policy_and_no_other_parent(bench: WorkBench, options: Any, report: BullQueue) -> None:
    schema = StructType().add("n", IntegerType()).add("opts", StringType())
    sink = Sink(options(jobColumns="opts"), schema)
    parent = json.dumps({"parent": {"queue": "q", "id": "p"}})
    with pytest.raises(OptionError, match="row 1: expected no `parent`"):
        sink.task([{"n": 0, "opts": None}, {"n": 1, "opts": parent}])
    assert not any(bench.queue.counts().values())
    sink.task([{"n": 0, "opts": '{"ignoreDependencyOnFailure": true}'}, {"n": 1, "opts": None}])
    sink.commit()
    bench.work(failed_for(bench.claim(1), "no"))
    assert complete_all(bench) == 1
    assert callback(report).state == "prioritized"


def test_no_key_of_a_finished_write_stays_for_ever(bench: WorkBench, options: Any, report: BullQueue) -> None:
    for delivery in DELIVERIES:
        written(options(delivery=delivery, chunkSize="2000"), ROWS, rows(*range(2_500)))
    callbacks = [job.id for job in report.page("waiting-children")]
    assert [bench.client.scard(report.handle.keys.children(job_id)) for job_id in callbacks] == [2_500, 2_500]
    keys = list(bench.client.scan_iter(match=f"{bench.handle.keys.prefix}:*:spark:*"))
    assert any(b":callback:" in key for key in keys)
    assert all(bench.client.ttl(key) > 0 for key in keys)
