"""Jobs of one key run one after the other, in the order of the rows: the option `sequenceBy`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType

from spark_bull.core.errors import DialectError, OptionError
from spark_bull.core.model.outcomes import Failed, Outcomes, Retried
from spark_bull.core.queue.bull_queue import BullQueue
from tests.conformance.written import written
from tests.support.traffic import script_work
from tests.support.without_spark import Sink
from tests.support.work_bench import WorkBench, completed, failed_for, only_bullmq, options_of

pytestmark = only_bullmq

ROWS = StructType().add("key", StringType()).add("n", IntegerType())
ID_ROWS = StructType().add("key", StringType()).add("n", IntegerType()).add("jobId", StringType())
OPTS_ROWS = StructType().add("key", StringType()).add("n", IntegerType()).add("opts", StringType())
DATA = StructType().add("data", StringType())


@pytest.fixture
def options(bench: WorkBench) -> Callable[..., dict[str, str]]:
    return lambda **given: options_of(bench.queue) | {"chunkSize": "3", "sequenceBy": "key"} | given


@pytest.fixture
def write(options: Any) -> Callable[..., None]:
    """Writes rows of these keys, numbered, in two partitions."""

    def write(keys: str, first: int = 0, **given: str) -> None:
        rows = [{"key": key, "n": n} for n, key in enumerate(keys, first)]
        written(options(**given), ROWS, rows[: len(rows) // 2], rows[len(rows) // 2 :])

    return write


def started(bench: WorkBench) -> tuple[Any, list[tuple[str, int]]]:
    """Claims all jobs that may start. Returns the claim, and their keys and numbers."""
    claim = bench.claim(100)
    return claim, [(data["key"], data["n"]) for data in (json.loads(job.data) for job in claim.jobs)]


@pytest.mark.parametrize("seed", range(3))
def test_the_order_is_kept_whatever_becomes_of_the_jobs(bench: WorkBench, write: Any, seed: int) -> None:
    """Writes, retries, failures, delays and completions in random order."""
    random = Random(seed)
    added, ended, running = defaultdict(list), defaultdict(list), {}
    number = 0
    for _ in range(60):
        if random.random() < 0.3:
            keys = "".join(random.choice("abcd") for _ in range(random.randrange(1, 9)))
            write(keys, first=number, attempts="3")
            for n, key in enumerate(keys, number):
                added[key].append(n)
            number += len(keys)
        claim, jobs = started(bench)
        for job, (key, n) in zip(claim.jobs, jobs, strict=True):
            assert key not in running, "two jobs of a key at once"
            running[key] = (claim.token, job.id, n)
        for key in random.sample(sorted(running), random.randrange(len(running) + 1)):
            token, job_id, n = running.pop(key)
            outcomes = Outcomes(token)
            choice = random.random()
            if choice < 0.3:
                outcomes.retried.append(Retried(job_id, "again", "[]", 0, False))
            elif choice < 0.5:
                outcomes.failed.append(Failed(job_id, "no", "[]", None, 1))
                ended[key].append(n)
            else:
                outcomes.complete(job_id, "1", {"count": 0} if choice < 0.7 else None)
                ended[key].append(n)
            bench.work(outcomes)
    while running or any(bench.queue.counts()[state] for state in ("wait", "waiting-children")):
        for key, (token, job_id, n) in running.items():
            outcomes = Outcomes(token)
            outcomes.complete(job_id, "1", None)
            bench.work(outcomes)
            ended[key].append(n)
        claim, jobs = started(bench)
        running = {key: (claim.token, job.id, n) for job, (key, n) in zip(claim.jobs, jobs, strict=True)}
        assert len(running) == len(jobs)
    assert ended == added


def test_a_failure_can_fail_the_rest_of_its_sequence(bench: WorkBench, write: Any) -> None:
    write("aaab", onFailure="fail")
    claim, _ = started(bench)
    bench.work(failed_for(claim, "no"))
    for n in (1, 2):
        claim, jobs = started(bench)
        assert jobs == [("a", n)]
        assert claim.jobs[0].deferred_failure == f"child {bench.handle.keys.job(str(n))} failed"
        bench.work(failed_for(claim, "no"))
    write("a", first=9)
    assert started(bench)[1] == [("a", 9)]


def test_a_delay_counts_from_the_end_of_the_job_before(bench: WorkBench, write: Any) -> None:
    write("aa", delay="3600000")
    assert bench.counts() == {"delayed": 1, "waiting-children": 1}
    (job,) = bench.queue.page("delayed")
    bench.queue.promote(job.id)
    bench.work(completed(bench.claim(1)))
    assert bench.counts() == {"completed": 1, "delayed": 1}


def test_a_job_that_exists_keeps_its_place(bench: WorkBench, options: Any) -> None:
    for _ in range(2):
        written(options(jobColumns="jobId"), ID_ROWS, [{"key": "a", "n": n, "jobId": f"job-{n}"} for n in range(3)])
    assert [(record.added, record.duplicates) for record in bench.queue.writes()] == [(3, 0), (0, 3)]
    for n in range(3):
        claim, jobs = started(bench)
        assert jobs == [("a", n)]
        bench.work(completed(claim))
    assert started(bench)[1] == []


@pytest.mark.parametrize("is_same", [True, False])
def test_a_sequence_goes_on_after_its_own_job_not_after_another_with_its_id(
    bench: WorkBench, options: Any, is_same: bool
) -> None:
    def write(job_id: str, n: int) -> None:
        written(options(jobColumns="jobId"), ID_ROWS, [{"key": "a", "n": n, "jobId": job_id}])

    write("report", 1)
    if not is_same:
        bench.queue.remove("report")
        bench.queue.add({"key": "b", "n": 2}, job_id="report", timestamp=1)
    write("next", 3)
    assert started(bench)[1] == ([("a", 1)] if is_same else [("b", 2), ("a", 3)])


def test_an_entry_of_a_sequence_may_be_an_id_without_the_time_of_its_job(bench: WorkBench, write: Any) -> None:
    (job_id,) = bench.add()
    bench.client.hset(bench.handle.keys["sequence_tails"], '["a"]', job_id)
    write("a")
    assert bench.counts() == {"wait": 1, "waiting-children": 1}


def test_entries_of_sequences_that_have_ended_are_removed(bench: WorkBench, options: Any) -> None:
    keep = {"removeOnComplete": "true"}
    for first in range(0, 600, 60):
        written(options(chunkSize="60", **keep), ROWS, [{"key": f"key-{n}", "n": n} for n in range(first, first + 60)])
        bench.work(completed(bench.claim(100), count=0))
    tails = bench.handle.keys["sequence_tails"]
    # At random: three times as many as without any that have ended.
    assert bench.client.hlen(tails) <= 180
    assert bench.client.ttl(tails) > 0
    bench.queue.obliterate(force=True)
    assert not bench.client.exists(tails)


@pytest.mark.parametrize("verb", ["drain", "clean"])
def test_a_large_sequence_is_removed_with_its_first_job(bench: WorkBench, options: Any, verb: str) -> None:
    """There are more jobs than levels of calls in a script of Redis."""
    written(
        options(chunkSize="1000"),
        ROWS,
        [{"key": "a", "n": n} for n in range(21_000)],
        [{"key": f"key-{n % 150}", "n": n} for n in range(1_500)],
    )
    with script_work(bench.client, prefix=bench.handle.keys.base) as scripts:
        if verb == "drain":
            assert bench.queue.drain() == 151
        else:
            assert len(bench.queue.clean(state="wait")) == 151
    # An ancestor takes about eight commands, of which 100 are deleted by one script.
    assert max(work.commands for work in scripts) < 3_000
    assert bench.counts() == {}
    assert not list(bench.client.scan_iter(f"{bench.handle.keys.base}[0-9]*"))


def test_null_and_several_columns_are_keys_too(bench: WorkBench, options: Any) -> None:
    schema = StructType().add("key", StringType()).add("n", IntegerType()).add("m", IntegerType())
    written(
        options(sequenceBy="key,m"),
        schema,
        [{"key": key, "n": 0, "m": m} for key, m in [(None, 1), ("a", 1), ("a", 2), ("a", 1), (None, 1)]],
    )
    assert len(bench.claim(100).jobs) == 3


def test_a_wrong_option_is_an_error_before_anything_is_written(bench: WorkBench, options: Any) -> None:
    wrong = [
        ({"sequenceBy": "kee"}, r"the columns in `sequenceBy`, got no column `kee` \(did you mean `key`"),
        ({"delivery": "at-least-once"}, "expected `delivery` to be exactly-once with `sequenceBy`"),
        ({"onFinish": "{}"}, "expected one of `onFinish` and `sequenceBy`"),
        ({"onFailure": "wait"}, "expected `onFailure` to be ignore or fail with `sequenceBy`, got: 'wait'"),
        ({"uniqueBy": "n"}, "expected one of `sequenceBy` and `uniqueBy`"),
        ({"deduplication": "x"}, "expected one of `sequenceBy` and `deduplication`"),
    ]
    for given, message in wrong:
        with pytest.raises(OptionError, match=message):
            Sink(options(**given), ROWS)
    flows = StructType().add("key", StringType()).add("data", StringType()).add("children", ArrayType(DATA))
    with pytest.raises(OptionError, match="expected one of `sequenceBy` and `children`"):
        Sink(options(), flows)
    assert not list(bench.client.scan_iter(match=f"{bench.handle.keys.prefix}:*"))


def test_a_row_with_a_parent_or_a_failure_policy_is_an_error(bench: WorkBench, options: Any) -> None:
    (parent,) = bench.add()
    policy = "failure policy in `opts` with `sequenceBy`.*onFailure"
    for opts, said in (
        ({"parent": {"queue": "q", "id": parent}}, "`parent` with `sequenceBy`"),
        ({"failParentOnFailure": True}, policy),
        ({"ignoreDependencyOnFailure": True}, policy),
    ):
        rows = [{"key": "a", "n": n, "opts": json.dumps(opts) if n else None} for n in range(2)]
        with pytest.raises(OptionError, match=f"row 1: expected no {said}"):
            Sink(options(jobColumns="opts"), OPTS_ROWS).task(rows)
    assert bench.counts() == {"wait": 1}


def test_jobs_of_bull_have_no_sequences(options: Any, open_queue: Callable[..., BullQueue]) -> None:
    with pytest.raises(DialectError, match="expected no `sequenceBy`"):
        Sink(options(protocol="bull"), ROWS)
    open_queue(protocol="bull").add({})
    several = options(jobColumns="queue", protocol="auto")
    del several["queue"]
    sink = Sink(several, StructType().add("key", StringType()).add("queue", StringType()))
    with pytest.raises(DialectError, match="expected no `sequenceBy`"):
        sink.task([{"key": "a", "queue": "q"}])
