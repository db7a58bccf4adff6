"""mode=claim and mode=settle without a Worker: a stream of claimed jobs, settled by a sink."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import BullQueue, NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Claim, Outcomes
from spark_bull.core.queue.work.claim import work
from spark_bull.run.claims import claimer
from spark_bull.spark.platform.positioned_reader import PositionedReader
from spark_bull.spark.platform.requirements import start_query
from spark_bull.spark.work import claim_stream
from spark_bull.spark.work.claim_stream import ClaimReader, claim_reader
from tests.spark.conftest import Bull
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.without_spark import ClaimingQuery

HOUR_MS = 3_600_000


class Stream:
    """Queries that claim jobs of the queue, compute ten times `n`, and settle."""

    def __init__(self, bull: Bull, folder: Path) -> None:
        self.bull, self.folder = bull, folder

    def claimed(self, schema: str | None = None, **more: Any) -> DataFrame:
        return self.bull.stream(schema=schema, mode="claim", **more)

    def start(self, answer: DataFrame, settle: Mapping[str, object] | None = None, **trigger: Any) -> Any:
        writer = answer.writeStream.format("bull").options(**self.bull.given(mode="settle", **settle or {}))
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint")).trigger(**trigger)
        return start_query(writer.start)

    def run(self, **more: Any) -> None:
        query = self.start(answered(self.claimed(**more)), availableNow=True)
        assert query.awaitTermination(PATIENCE_S)


def answered(jobs: DataFrame) -> DataFrame:
    return jobs.select("id", "token", (f.get_json_object("data", "$.n").cast("int") * 10).alias("returnvalue"))


@pytest.fixture
def stream(bull: Bull, queue: BullQueue, tmp_path: Path) -> Stream:
    return Stream(bull, tmp_path)


OpenReader = Callable[..., ClaimReader]


@pytest.fixture
def open_reader(bull: Bull) -> OpenReader:
    return lambda **options: claim_reader(bull.given(protocol="bullmq", **options))


def values(queue: BullQueue) -> dict[int, Any]:
    return {job.parsed()["n"]: job.parsed("returnvalue") for job in queue.page("completed")}


@pytest.mark.parametrize(
    ("given", "worker", "tasks"),
    [
        ({"chunkSize": "1", "workerName": "prices"}, "prices", [[0, 5], [1, 6], [2, 7], [3, 8], [4, 9]]),
        ({}, "spark-reader", [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]),
    ],
)
def test_the_jobs_of_a_batch_are_dealt_to_its_tasks_and_show_the_name_of_the_worker(
    queue: BullQueue, open_reader: OpenReader, given: dict[str, str], worker: str, tasks: list[list[int]]
) -> None:
    reader = open_reader(rowsPerPartition=2, readerId="reader", **given)
    queue.add_many(NewJob({"n": n}) for n in range(10))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    batches = [list(reader.read(part)) for part in reader.partitions(start, end)]
    found = [[json.loads(data)["n"] for batch in task for data in batch["data"].to_pylist()] for task in batches]
    assert found == tasks
    assert reader.partitions(end, end) == []
    assert {job.processed_by for job in queue.page("active")} == {worker}


def wait_for_claims_ahead(reader: ClaimReader) -> None:
    """As if the tasks of the batch took longer than to claim the jobs of the next one."""
    if reader._claimer._prefetch is not None:
        reader._claimer._prefetch.result()


def batches(queue: BullQueue, reader: ClaimReader, added: Iterable[int]) -> Iterator[dict[str, Any]]:
    """The end of each batch, before which these numbers of jobs were added."""
    start = reader.initialOffset()
    for jobs in added:
        queue.add_many(NewJob({"n": n}) for n in range(jobs))
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end != start:
            reader.partitions(start, end)
            wait_for_claims_ahead(reader)
        yield end
        start = end


@pytest.mark.capability("available-now")
def test_a_query_that_was_idle_begins_with_a_small_batch(
    queue: BullQueue, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "LEAST", 5)
    monkeypatch.setattr(claimer, "MOST", 40)
    monkeypatch.setattr(claim_stream, "monotonic_s", lambda: 0.0)
    ends = [end["claimed"] for end in batches(queue, open_reader(), (60, 0, 0, 0, 0, 60, 0))]
    assert ends == [5, 10, 50, 60, 60, 65, 105]


@pytest.mark.capability("available-now")
def test_a_batch_waits_for_enough_jobs_without_claiming_them_unless_the_query_may_end(
    queue: BullQueue, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimer, "LEAST", 2)
    reader = open_reader(minJobsPerTrigger=10, maxTriggerDelayMs=HOUR_MS)
    ends = []
    # 15 jobs wait at the second batch, and the last 5 of them are not claimed ahead.
    for start in batches(queue, reader, (9, 6, 5, 0, 4, 6)):
        assert queue.counts()["active"] == start["claimed"]
        ends.append(start["claimed"])
    assert ends == [0, 10, 20, 20, 20, 30]
    queue.add({"n": 1})
    assert reader.reportLatestOffset()["claimed"] == 31
    assert reader.latestOffset(start, reader.getDefaultReadLimit())["claimed"] == 30
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(start, reader.getDefaultReadLimit())["claimed"] == 31


def test_all_batches_but_the_first_wait_where_pyspark_does_not_tell_whether_that_is_the_last(
    queue: BullQueue, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_stream, "PASSES_START", False)
    reader, ends = PositionedReader(open_reader(minJobsPerTrigger=10, maxTriggerDelayMs=HOUR_MS)), []
    end = reader.initialOffset()
    for jobs in (4, 4, 0, 6):
        queue.add_many(NewJob({"n": n}) for n in range(jobs))
        start, end = end, reader.latestOffset()
        reader.partitions(start, end)
        ends.append(end["claimed"])
    assert ends == [4, 4, 4, 14]


@pytest.mark.capability("available-now")
def test_jobs_claimed_ahead_become_smaller_batches_when_jobs_turn_slow(
    queue: BullQueue, open_reader: OpenReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(claimer, "LEAST", 5)
    monkeypatch.setattr(claimer, "MOST", 40)
    monkeypatch.setattr(claim_stream, "monotonic_s", lambda: now_s)
    reader = open_reader(chunkSize=2)
    queue.add_many(NewJob({"n": n}) for n in range(60))
    start, ends, found = reader.initialOffset(), [], []
    for seconds in (0.1, 60.0, 0.1, 60.0, 0.1):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        for part in reader.partitions(start, end):
            found += [json.loads(data)["n"] for batch in reader.read(part) for data in batch["data"].to_pylist()]
        wait_for_claims_ahead(reader)
        ends.append(end["claimed"])
        start, now_s = end, now_s + seconds
    # The first two batches were claimed before any was slow. 40 jobs were claimed during the second one.
    assert ends == [5, 10, 14, 50, 54]
    assert found == list(range(54))


def test_a_failed_batch_is_repeated_with_the_same_jobs(queue: BullQueue, stream: Stream, tmp_path: Path) -> None:
    flag = tmp_path / "mended"

    def fragile(n: int) -> int:
        if n == 7 and not flag.exists():
            raise ValueError("not mended yet")
        return n

    ids = queue.add_many(NewJob({"n": n}) for n in range(10)).ids
    jobs = stream.claimed().withColumn("n", f.udf(fragile, "int")(f.get_json_object("data", "$.n").cast("int")))
    answer = jobs.select("id", "token", f.col("n").alias("returnvalue"))
    with pytest.raises(StreamingQueryException, match="not mended yet"):
        stream.start(answer, availableNow=True).awaitTermination(PATIENCE_S)
    flag.touch()
    assert stream.start(answer, availableNow=True).awaitTermination(PATIENCE_S)
    assert values(queue) == {n: n for n in range(10)}
    assert sorted(job.id for job in queue.page("completed")) == sorted(ids)
    assert all(job.attempts_started == 1 for job in queue.page("completed"))


def test_locks_are_extended_during_a_long_batch(
    queue: BullQueue, stream: Stream, client: Redis, tmp_path: Path
) -> None:
    may_end, seen = tmp_path / "may-end", list[int]()

    def slow(n: int) -> int:
        wait_until(may_end.exists, "the lock to be extended")
        return n

    lock = queue.handle.keys.lock(queue.add({"n": 1}))
    answer = stream.claimed(lockMs=10_000).select("id", "token", f.udf(slow, "int")(f.lit(1)).alias("returnvalue"))
    query = stream.start(answer, availableNow=True)

    def is_extended() -> bool:
        seen.append(client.pttl(lock))
        return len(seen) > 1 and seen[-1] > seen[-2] > 0

    wait_until(is_extended, "the lock of the job to be extended")
    may_end.touch()
    assert query.awaitTermination(PATIENCE_S)
    assert values(queue) == {1: 1}


WRONG: list[tuple[Callable[[Stream], Any], str]] = [
    (lambda s: run(s, s.bull.stream(mode="settle")), "is not supported here"),
    (lambda s: s.bull.read(mode="claim").count(), "is not supported here"),
    (lambda s: run(s, s.claimed(maxJobsPerTriger=1)), "maxJobsPerTrigger"),
    (lambda s: run(s, s.claimed(maxBytesPerTrigger=1)), "Redis gives out jobs by their number"),
    (lambda s: run(s, s.claimed(minJobsPerTrigger=3, maxJobsPerTrigger=2)), "`minJobsPerTrigger` to be at most"),
    (lambda s: run(s, s.claimed("id STRING, other INT, priority INT")), "got: other INT, priority INT"),
    (lambda s: settle(s, s.bull.spark.range(1)), "`id`"),
    (lambda s: settle(s, s.bull.spark.sql("SELECT '1' id, 't' token")), "`returnvalue` or `error`"),
    (lambda s: settle(s, s.bull.spark.sql("SELECT '1' id, 't' token, 1 error")), "`error`"),
    (lambda s: settle(s, s.bull.spark.sql("SELECT '1' id, 't' token, 1 returnvalue, 2 other")), "`other`"),
]


def run(stream: Stream, jobs: DataFrame) -> None:
    writer = jobs.writeStream.format("noop").option("checkpointLocation", str(stream.folder / "run"))
    assert start_query(writer.trigger(availableNow=True).start).awaitTermination(PATIENCE_S)


def settle(stream: Stream, frame: DataFrame) -> None:
    stream.bull.write(frame, mode="settle")


def test_wrong_options_and_columns_are_errors_before_any_task(stream: Stream) -> None:
    for call, words in WRONG:
        with pytest.raises((AnalysisException, StreamingQueryException), match=words):
            call(stream)


@pytest.mark.capability("available-now")
def test_claim_and_settle_support_the_options_of_a_worker(queue: BullQueue, stream: Stream, client: Redis) -> None:
    queue.add_many([*(NewJob({"n": n}) for n in range(10)), NewJob({"n": 10}, remove_on_complete=False)])
    limiter = '{"max": 100, "duration": 600000}'
    schema = "data STRING, token STRING, id STRING, attemptsMade INT"
    claimed = stream.claimed(schema, workerName="sparky", limiter=limiter, chunkSize=4, maxJobsPerTrigger=5)
    assert claimed.columns == ["data", "token", "id", "attemptsMade"]
    # One task settles the jobs in the order in which they were added.
    settle = {"removeOnComplete": '{"count": 3}', "metricsMinutes": 5}
    answer = answered(claimed.where("attemptsMade = 0")).coalesce(1)
    query = stream.start(answer, settle, availableNow=True)
    assert query.awaitTermination(PATIENCE_S)
    keys = queue.handle.keys
    kept = queue.page("completed")
    assert {job.processed_by for job in kept} == {"sparky"}
    # The last three jobs without a rule of their own, and the job with the rule to keep it.
    assert values(queue) == {n: 10 * n for n in (7, 8, 9, 10)}
    assert client.get(keys["limiter"]) == b"11"
    assert client.hget(keys["metrics_completed"], "count") == b"11"
    assert queue.counts()["active"] == 0


def end_jobs(queue: BullQueue, claim: Claim) -> None:
    """Completes the jobs of another worker."""
    outcomes = Outcomes(claim.token)
    for job in claim.jobs:
        outcomes.complete(job.id, "null")
    work(queue.handle, WorkSettings("other"), outcomes, 0)


def test_available_now_waits_while_other_workers_hold_the_concurrency(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch, own_log: pytest.LogCaptureFixture
) -> None:
    pauses: list[float] = []

    def end_at_the_second(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            end_jobs(queue, others)

    monkeypatch.setattr(claim_stream, "time", SimpleNamespace(sleep=end_at_the_second))
    queue.set_limits(concurrency=2)
    ids = queue.add_many(NewJob({"n": n}) for n in range(5)).ids
    others = work(queue.handle, WorkSettings("other", lock_ms=HOUR_MS), None, 2)
    query = ClaimingQuery(queue)
    query.reader.prepareForTriggerAvailableNow()
    assert [row["id"] for row in query.batch()] == ids[2:4]
    assert len(pauses) == 2
    (text,) = own_log.messages
    assert "the query waits for other workers, whose jobs take the concurrency of the queue (2)" in text
    assert "(3 wait)" in text
    # Its own jobs, which it has not settled, take the places now.
    assert query.batch() == []
    assert len(pauses) == 2
    assert (
        "the query ends though jobs are left (1 wait), as jobs that it has claimed and not settled"
        in own_log.messages[1]
    )


@pytest.mark.capability("available-now")
def test_a_query_that_waits_for_other_workers_can_be_stopped(queue: BullQueue, stream: Stream, client: Redis) -> None:
    queue.set_limits(concurrency=1)
    queue.add_many([NewJob({"n": 1}), NewJob({"n": 2})])
    work(queue.handle, WorkSettings("other", lock_ms=HOUR_MS), None, 1)
    query = stream.start(answered(stream.claimed(readerId="reader")), availableNow=True)
    receipts: set[bytes] = set()

    def has_tried_again() -> bool:
        receipts.add(client.get(queue.handle.keys.receipt("reader")) or b"")
        return len(receipts) > 3 or not query.isActive

    wait_until(has_tried_again, "the query to try again")
    assert query.isActive
    query.stop()
    assert not query.isActive
    counts = queue.counts()
    assert (counts["active"], counts["wait"]) == (1, 1)


@pytest.mark.capability("available-now")
def test_available_now_waits_for_the_rate_limits_of_groups(queue: BullQueue, stream: Stream) -> None:
    queue.add_many(NewJob({"n": n, "tenant": n % 2}) for n in range(6))
    stream.run(group='{"by": "tenant", "max": 1, "duration_ms": 2000, "concurrency": 1}')
    assert values(queue) == {n: 10 * n for n in range(6)}


def test_available_now_does_not_wait_for_jobs_of_groups_that_nobody_settles(queue: BullQueue, stream: Stream) -> None:
    queue.add_many(NewJob({"n": n, "tenant": 1}) for n in range(3))
    run(stream, stream.claimed(group='{"by": "tenant", "max": 2, "duration_ms": 2000, "concurrency": 1}'))
    counts = queue.counts()
    assert (counts["active"], counts["delayed"]) == (1, 2)


def test_rows_can_fail_or_postpone_their_jobs(queue: BullQueue, stream: Stream) -> None:
    queue.add_many(NewJob({"n": n}, attempts=1 if n == 6 else 2) for n in range(7))
    later = f.timestamp_millis(f.lit(2_000_000_000_000))
    n = f.get_json_object("data", "$.n").cast("int")
    answer = stream.claimed().select(
        "id",
        "token",
        f.when(n < 4, 1).alias("returnvalue"),
        f.when(n == 1, 3_600_000).alias("delay"),
        f.when(n == 2, later).alias("runAt"),
        f.when(n == 3, 600_000).alias("rateLimit"),
        f.when(n > 3, f.concat(f.lit("bad "), n)).alias("error"),
        (n == 5).alias("unrecoverable"),
    )
    assert stream.start(answer, availableNow=True).awaitTermination(PATIENCE_S)
    found = {state: {job.parsed()["n"]: job for job in queue.page(state)} for state in queue.counts()}
    assert {state: {*jobs} for state, jobs in found.items() if jobs} == {
        "completed": {0},
        "delayed": {1, 2},
        "wait": {3, 4},
        "failed": {5, 6},
    }
    assert {job.failed_reason for job in queue.page("failed")} == {"bad 5", "bad 6"}
    assert found["delayed"][2].run_at == 2_000_000_000_000
    assert {n: job.attempts_made for n, job in (found["delayed"] | found["wait"]).items()} == {1: 0, 2: 0, 3: 0, 4: 1}
    assert queue.handle.connection.call("PTTL", queue.handle.keys["limiter"]) > 0
