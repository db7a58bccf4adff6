"""Whatever a processor does, except killing its process, affects only its own job, in every dialect."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.functions import pandas_udf, udf
from pyspark.sql.types import StructField, StructType, TimestampType
from redis import Redis

from spark_bull.core.errors import DelayedError, RateLimitError, ReturnedError
from spark_bull.core.model.jobs import NewJob, RawJson
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.run.job.job_runner import FunctionRunner, Runner
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot import chunk_loop as loop
from spark_bull.run.slot.slot import loop_of
from spark_bull.run.slot.slot_plan import SlotPlan, SlotQueuePlan
from spark_bull.spark.work.udf_runner import UdfRunner, udf_runner
from tests.support.jobs import HOUR
from tests.support.wait import wait_until
from tests.support.work_bench import each_dialect
from tests.support.worker import OurWorker, end_all


class MessageRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


class MessageInterrupts(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class MessageIsNoText(Exception):
    def __str__(self) -> str:
        return 7


class NotesRaise(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise SystemExit(1)


class Everything(BaseException):
    pass


class UnreadableDict(dict[str, Any]):
    def items(self) -> Any:
        raise KeyboardInterrupt


def raising(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


def recursing() -> Any:
    return recursing()


def changed(error: BaseException, name: str, value: Any) -> Callable[[], Any]:
    """Raises an error with an attribute that was changed afterwards."""
    setattr(error, name, value)
    return raising(error)


def nested(depth: int) -> Any:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def chained() -> Any:
    try:
        raise MessageRaises
    except MessageRaises as error:
        raise ValueError("the second one") from error


#: By name: the function of a processor, and a pattern of the failed reason.
MISBEHAVIOURS: dict[str, tuple[Callable[[], Any], str]] = {
    "unpaired surrogate": (raising(ValueError("half \ud83d a sign")), "^half \ufffd a sign$"),
    "surrogates that belong together": (raising(ValueError("sign \ud83d\ude80")), "^sign 🚀$"),
    "message that raises": (raising(MessageRaises()), "^MessageRaises"),
    "message that interrupts": (raising(MessageInterrupts()), "^MessageInterrupts"),
    "message that is no text": (raising(MessageIsNoText()), "^MessageIsNoText"),
    "trace that can't be formatted": (raising(NotesRaise("kept")), "^kept$"),
    "cause that can't be formatted": (chained, "^the second one$"),
    "huge message": (raising(ValueError("x" * 5_000_000)), r"characters left out"),
    "message with a null character": (raising(ValueError("a\x00b")), "^a\x00b$"),
    "key error": (raising(KeyError("to")), "^KeyError: 'to'$"),
    "number as message": (raising(ValueError(3)), "^ValueError: 3$"),
    "empty message": (raising(AssertionError()), "^AssertionError$"),
    "cancelled": (raising(asyncio.CancelledError()), "^CancelledError$"),
    "keyboard interrupt": (raising(KeyboardInterrupt()), "^KeyboardInterrupt$"),
    "generator exit": (raising(GeneratorExit()), "^GeneratorExit$"),
    "stop iteration": (lambda: next(iter(())), "^StopIteration$"),
    "system exit": (lambda: sys.exit(3), "^SystemExit: 3$"),
    "memory error": (raising(MemoryError()), "^MemoryError$"),
    "base exception": (raising(Everything("of its own")), "^of its own$"),
    "endless recursion": (recursing, "recursion"),
    "value that is no JSON": (lambda: {1, 2}, "that JSON can hold, got set"),
    "value that raises": (lambda: UnreadableDict(a=1), "that JSON can hold, got UnreadableDict: KeyboardInterrupt"),
    "value nested too deeply": (lambda: nested(100_000), "that JSON can hold, got list"),
    "value that is no number": (lambda: float("nan"), "that JSON can hold, got float"),
    "raw JSON that is no text": (lambda: RawJson(object()), "the text of RawJson to be a string"),
    "raw JSON that is no Unicode": (lambda: RawJson('"\ud83d"'), "that JSON can hold, got RawJson"),
    "delay that is no number": (lambda: raising(DelayedError("soon"))(), "`delay_ms`"),
    "delay changed to a text": (changed(DelayedError(5), "delay_ms", "soon"), "`delay_ms`"),
    "delay changed to no number": (changed(DelayedError(5), "delay_ms", float("nan")), "`delay_ms`"),
    "delay changed to nothing": (changed(DelayedError(5), "delay_ms", None), "`delay_ms`"),
    "time changed to one before all time": (changed(DelayedError(until=5), "until", -1), "`until`"),
    "rate limit changed beyond all time": (changed(RateLimitError(5), "duration_ms", 10**30), "`duration_ms`"),
    "rate limit changed to a text": (changed(RateLimitError(5), "duration_ms", "long"), "`duration_ms`"),
    "rate limit beyond all time": (lambda: raising(RateLimitError(10**30))(), "`duration_ms`"),
    "rate limit that is no number": (lambda: raising(RateLimitError(float("nan")))(), "`duration_ms`"),
}


def by_name(queue: BullQueue, state: str) -> dict[str, Any]:
    return {job.data["name"]: job for job in queue.page(state)}


def misbehave(queue: BullQueue, bad: Iterable[str], **worker: Any) -> None:
    """Processes these jobs, each before one that completes, in one chunk; each fails for its own reason."""
    names = [name for one in bad for name in (one, f"after {one}")]
    queue.add_many(NewJob({"name": name}) for name in names)
    end_all(queue, chunk_size=len(names), **worker)
    failed = by_name(queue, "failed")
    assert failed.keys() == {*names[::2]}
    assert by_name(queue, "completed").keys() == {*names[1::2]}
    for name, job in failed.items():
        assert re.search(MISBEHAVIOURS[name][1], job.failed_reason), (name, job.failed_reason)


@each_dialect
def test_a_misbehaving_processor_affects_only_its_own_job(queue: BullQueue) -> None:
    ran = Counter[str]()

    def processor(job: RunningJob) -> Any:
        ran[job.data["name"]] += 1
        act, _ = MISBEHAVIOURS.get(job.data["name"], (lambda: "fine", ""))
        return act()

    misbehave(queue, MISBEHAVIOURS, processor=processor)
    assert {*ran.values()} == {1}
    assert {len(job.stacktrace) for job in queue.page("failed")} == {1}


def test_a_misbehaving_udf_affects_only_its_own_row(queue: BullQueue) -> None:
    def function(name: str) -> Any:
        act, _ = MISBEHAVIOURS.get(name, (lambda: "fine", ""))
        return str(act())

    bad = [name for name in MISBEHAVIOURS if not re.search("value|raw JSON|delay|rate limit", name)]
    payload = pa.struct([pa.field("name", pa.string())])
    misbehave(queue, bad, runner=UdfRunner(function, "row", payload, pa.string()))


@each_dialect
@pytest.mark.parametrize("keeps", [(None, None, None), (None, True, None)])
def test_results_of_a_udf_are_stored_as_those_of_a_function(
    queue: BullQueue, open_queue: Callable[..., BullQueue], client: Redis, keeps: Sequence[bool | int | None]
) -> None:
    payload = pa.struct([pa.field("n", pa.int64())])
    runners: list[Runner] = [
        UdfRunner(lambda n: n, "arrow", payload, pa.int64()),
        FunctionRunner(lambda job: job.data["n"]),
    ]
    stored = []
    for runner, to in zip(runners, (queue, open_queue("r", protocol=queue.protocol)), strict=True):
        jobs = zip((0, 7, None), keeps, strict=True)
        ids = [to.add({"n": n}, remove_on_complete=keep) for n, keep in jobs]
        end_all(to, runner=runner, chunk_size=3)
        stored.append([client.hget(to.handle.keys.job(job_id), "returnvalue") for job_id in ids])
    assert stored[0] == stored[1]
    assert stored[0][0] == (b"" if queue.protocol == "bull-1" else b"0")


@pytest.mark.parametrize("make", [udf, pandas_udf])
def test_timestamps_of_udfs_are_instants(queue: BullQueue, make: Callable[..., Any]) -> None:
    processor = make(lambda at: at + timedelta(hours=1), TimestampType())
    runner = udf_runner(processor, StructType([StructField("at", TimestampType())]), timeout_ms=0)
    queue.add_many(NewJob({"at": at}) for at in ("2025-01-01T12:00:00Z", "2025-01-01T12:00:00.5+05:30"))
    end_all(queue, runner=runner, chunk_size=2)
    values = {job.returnvalue for job in queue.page("completed")}
    assert values == {"2025-01-01T13:00:00.000Z", "2025-01-01T07:30:00.500Z"}


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (lambda *_: 1 / 0, r"bad \(no more attempts: the backoff strategy raised division by zero\)"),
        (lambda *_: "soon", r"bad \(no more attempts: expected the backoff strategy to return ms, got: str\)"),
        (lambda *_: float("nan"), r"to return ms, got: float"),
        (lambda *_: -1, r"bad$"),
    ],
)
def test_a_backoff_strategy_that_fails_ends_the_attempts_of_its_job(
    queue: BullQueue, strategy: Callable[..., Any], reason: str
) -> None:
    def processor(job: RunningJob) -> None:
        raise ValueError("bad")

    queue.add({"name": "one"}, attempts=3, backoff={"type": "mine", "delay": 1})
    end_all(queue, processor, policy=OutcomePolicy(strategy=strategy))
    failed = by_name(queue, "failed")["one"]
    assert (failed.attempts_made, re.search(reason, failed.failed_reason) is not None) == (1, True), failed


@each_dialect
def test_jobs_are_retried_by_the_rule_for_the_class_of_their_error(queue: BullQueue) -> None:
    def processor(job: RunningJob) -> None:
        raise {"away": ConnectionResetError, "wrong": UnicodeError, "other": KeyError}[job.data["name"]](
            job.data["name"]
        )

    queue.add_many(NewJob({"name": name}, attempts=2) for name in ("away", "wrong", "other"))
    end_all(queue, processor, policy=OutcomePolicy(retry={"ConnectionError": 3, "ValueError": 0}))
    assert {name: job.attempts_made for name, job in by_name(queue, "failed").items()} == {
        "away": 3,
        "wrong": 1,
        "other": 2,
    }


@pytest.mark.parametrize(
    "runner",
    [
        FunctionRunner(lambda job: "x" * 3_000_000),
        UdfRunner(lambda job: "x" * 3_000_000, "row", pa.struct([pa.field("name", pa.string())]), pa.string()),
    ],
)
def test_large_return_values_are_settled_in_parts(queue: BullQueue, runner: Runner) -> None:
    queue.add_many(NewJob({"name": str(n)}) for n in range(8))
    end_all(queue, runner=runner, chunk_size=8)
    assert len(by_name(queue, "completed")) == 8


@each_dialect
def test_no_other_job_of_the_chunk_starts_after_a_rate_limit_error(queue: BullQueue) -> None:
    ran: list[str] = []

    def processor(job: RunningJob) -> None:
        ran.append(job.id)
        raise RateLimitError(HOUR)

    ids = queue.add_many(NewJob({"name": str(n)}) for n in range(4)).ids
    with OurWorker(queue.handle, processor, chunk_size=4):
        wait_until(lambda: ran and queue.counts()["wait"] == 4, "all jobs to be released")
    assert ran == ids[:1]
    if queue.protocol == "bullmq":
        jobs = [queue.job(job_id) for job_id in ids]
        assert [job and job.attempts_started for job in jobs] == [1, None, None, None]


@each_dialect
def test_a_job_that_its_processor_returns_is_the_next_one_and_has_lost_no_attempt(queue: BullQueue) -> None:
    ran: list[str] = []

    def processor(job: RunningJob) -> None:
        ran.append(job.id)
        if ran.count(job.id) <= 2:
            raise ReturnedError

    ids = queue.add_many(NewJob({"name": str(n)}, attempts=2) for n in range(3)).ids
    end_all(queue, processor, chunk_size=1)
    assert ran == [job_id for job_id in ids for _ in range(3)]
    jobs = queue.page("completed")
    assert not any(job.stacktrace for job in jobs)
    assert {job.returned_counter for job in jobs} == {2}
    if queue.protocol == "bullmq":
        assert {(job.attempts_made, job.attempts_started) for job in jobs} == {(1, 3)}


@each_dialect
def test_a_delay_counts_from_the_end_of_the_attempt_that_asks_for_it(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = 0.0
    monkeypatch.setattr(loop, "monotonic_s", lambda: passed_s)

    def processor(job: RunningJob) -> None:
        nonlocal passed_s
        passed_s += HOUR / 1000
        raise DelayedError(HOUR)

    queue.add({"name": "one"})
    before = queue.handle.connection.now_ms()
    with OurWorker(queue.handle, processor):
        wait_until(lambda: queue.counts()["delayed"], what="the job to be delayed")
    (job,) = queue.page("delayed")
    assert job.run_at >= before + 2 * HOUR


def test_a_signal_to_the_process_ends_the_slot(queue: BullQueue) -> None:
    def processor(job: RunningJob) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    queue.add_many(NewJob({"name": str(n)}) for n in range(3))
    name = uuid4().hex[:8]
    work_settings = WorkSettings(name, control=queue.handle.keys.control(name))
    plan = SlotPlan((SlotQueuePlan(queue.handle, work_settings),), name, FunctionRunner(processor), chunk_size=100)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        loop_of(plan, 0).run()
    assert signal.getsignal(signal.SIGINT) is before
    assert queue.counts()["active"] == 3
