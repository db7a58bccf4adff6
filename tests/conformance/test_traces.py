"""Spans of OpenTelemetry: jobs carry the context of the span that added them, and attempts are in its trace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import baggage, context
from opentelemetry.metrics import get_meter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer, get_current_span

from spark_bull import BullQueue, DialectError, NewJob, OptionError, current_trace
from spark_bull.core.errors import (
    DelayedError,
    JobTimeout,
    RateLimitError,
    ReturnedError,
    UnrecoverableError,
    WaitingForChildren,
)
from spark_bull.core.tracing.otel import JobSpan
from spark_bull.core.tracing.tracer import check_sendable, meter_of, spans_of
from spark_bull.run.job.job_runner import FunctionRunner, JobFunction
from spark_bull.run.job.named_runner import NamedRunner
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.slot import run_slot
from spark_bull.spark.work.udf_runner import UdfRunner
from tests.support.jobs import HOUR
from tests.support.metrics import MetricRecorder
from tests.support.wait import wait_until
from tests.support.worker import OurWorker, end_all, settled

Open = Callable[..., BullQueue]

each_way = pytest.mark.parametrize("way", ["one by one", "threads", "coroutines"])


class Recorder:
    """A tracer of the SDK, and the spans that have ended."""

    def __init__(self, *, batched: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor((BatchSpanProcessor if batched else SimpleSpanProcessor)(self.exporter))
        self.tracer: Tracer = provider.get_tracer("tests")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    @property
    def processed(self) -> list[ReadableSpan]:
        """The spans of attempts, and of batches."""
        return [span for span in self.spans if span.name == "process q"]

    def named(self, name: str) -> ReadableSpan:
        (span,) = (span for span in self.spans if span.name == name)
        return span


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def queue(open_queue: Open, recorder: Recorder) -> BullQueue:
    return open_queue(protocol="bullmq", tracer=recorder.tracer)


def carried_by(queue: BullQueue, job_id: str) -> str:
    """The traceparent that a job carries; "" for none."""
    job = queue.job(job_id)
    return str(json.loads(job.opts.get("tm", "{}")).get("traceparent", ""))


def traceparent(span: ReadableSpan) -> str:
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"


def bullmq_attributes(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("bullmq."): value for name, value in (span.attributes or {}).items()}


def parent_of(span: ReadableSpan) -> tuple[int, int]:
    return span.parent.trace_id, span.parent.span_id


def ids_of(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def worker(queue: BullQueue, function: JobFunction, way: str, tracer: object) -> OurWorker:
    async def coroutine(job: RunningJob) -> Any:
        await asyncio.sleep(0)
        return function(job)

    if way == "coroutines":
        return OurWorker(queue.handle, coroutine, tracer=tracer, worker="w")
    return OurWorker(queue.handle, function, tracer=tracer, worker="w", concurrency=1 if way == "one by one" else 2)


def process(queue: BullQueue, function: JobFunction, way: str, tracer: object) -> OurWorker:
    """Processes all jobs of a queue; returns the worker, which has stopped."""
    with worker(queue, function, way, tracer) as ours:
        wait_until(lambda: settled(queue), "all jobs to end")
    return ours


# adding


def test_jobs_carry_the_context_of_the_span_that_added_them(queue: BullQueue, recorder: Recorder) -> None:
    with recorder.tracer.start_as_current_span("request"):
        job_id = queue.add({}, name="send")
    request, add = recorder.named("request"), recorder.named("add q.send")
    assert parent_of(add) == ids_of(request)
    assert bullmq_attributes(add) == {"queue.name": "q", "queue.operation": "add", "job.name": "send", "job.id": job_id}
    assert carried_by(queue, job_id) == traceparent(add)
    ids = queue.add_many(NewJob({"n": n}) for n in range(3)).ids
    span = recorder.named("addBulk q")
    assert bullmq_attributes(span) == {"queue.name": "q", "queue.operation": "addBulk", "job.bulk.count": 3}
    assert {job.opts["tm"] for job in map(queue.job, ids)} == {f'{{"traceparent":"{traceparent(span)}"}}'}


def test_the_span_of_a_call_that_fails_has_the_error(queue: BullQueue, recorder: Recorder) -> None:
    with pytest.raises(OptionError):
        queue.add({}, priority=-1)
    (span,) = recorder.spans
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


def test_jobs_of_bull_and_of_a_queue_or_worker_without_a_tracer_carry_no_context(
    open_queue: Open, recorder: Recorder
) -> None:
    def processor(job: RunningJob) -> None:
        if not job.data:
            job.then(NewJob({"n": 1}, job_id="next"))

    queue = open_queue(protocol="bullmq")
    with recorder.tracer.start_as_current_span("request"):
        assert carried_by(queue, queue.add({})) == ""
        process(queue, processor, "one by one", None)
    assert carried_by(queue, "next") == ""
    refusal = "expected no `telemetry` or `tracer`: jobs of bull carry no trace context; leave it out"
    with pytest.raises(DialectError, match=refusal):
        open_queue("other", "bull", tracer=recorder.tracer)


# processing


@each_way
def test_an_attempt_is_in_the_trace_of_the_call_that_added_its_job(
    queue: BullQueue, recorder: Recorder, way: str
) -> None:
    seen: list[Any] = []

    def processor(job: RunningJob) -> None:
        seen.append((get_current_span(), baggage.get_baggage("tenant")))

    token = context.attach(baggage.set_baggage("tenant", "ada"))
    job_id = queue.add({}, name="send")
    context.detach(token)
    ours = process(queue, processor, way, recorder.tracer)
    add, attempt = recorder.named("add q.send"), recorder.named("process q")
    assert parent_of(attempt) == ids_of(add)
    ((current, tenant),) = seen
    assert (ids_of(current), tenant) == (ids_of(attempt), "ada")
    attributes = bullmq_attributes(attempt)
    assert attributes.pop("job.attempt_finished_timestamp") >= attributes.pop("job.processed.timestamp") > 0
    assert attributes == {
        "queue.name": "q",
        "queue.operation": "process",
        "worker.id": ours.id,
        "worker.name": "w",
        "job.id": job_id,
        "job.name": "send",
        "job.attempts.made": 1,
    }
    assert [event.name for event in attempt.events] == ["job completed"]


@each_way
def test_an_attempt_that_fails_has_its_error_and_each_attempt_a_span(
    queue: BullQueue, recorder: Recorder, way: str
) -> None:
    def processor(job: RunningJob) -> None:
        if job.attempts_made == 0:
            raise ValueError("no address")

    queue.add({}, attempts=2)
    process(queue, processor, way, recorder.tracer)
    first, second = recorder.processed
    assert first.context.trace_id == second.context.trace_id
    assert [event.name for event in first.events] == ["job failed", "exception"]
    assert dict(first.events[0].attributes or {}) == {"bullmq.job.failed.reason": "no address"}
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert [bullmq_attributes(span)["job.attempts.made"] for span in (first, second)] == [1, 2]


@pytest.mark.parametrize(
    ("error", "way"),
    [
        (DelayedError(HOUR), "one by one"),
        (RateLimitError(HOUR), "threads"),
        (ReturnedError(), "coroutines"),
        (WaitingForChildren(), "one by one"),
        (DelayedError(HOUR), "batch"),
        (ReturnedError(), "batch"),
    ],
)
def test_a_job_that_is_put_back_has_not_failed(
    queue: BullQueue, recorder: Recorder, error: Exception, way: str
) -> None:
    def processor(_: Any) -> Any:
        raise error

    job_id = queue.add({"n": 1})
    queue.handle.connection.call("SADD", queue.handle.keys.children(job_id), "an unfinished one")
    udf = replace(UDF, function=processor)
    batches = OurWorker(queue.handle, runner=udf, chunk_size=100, tracer=recorder.tracer, worker="w")
    with batches if way == "batch" else worker(queue, processor, way, recorder.tracer):
        wait_until(lambda: recorder.processed, "the attempt")
    # A job that was returned to the queue runs again at once.
    span = recorder.processed[0]
    assert (span.status.status_code, list(span.events)) == (StatusCode.UNSET, [])


@each_way
def test_jobs_that_a_processor_adds_carry_the_context_of_its_span(
    queue: BullQueue, recorder: Recorder, way: str
) -> None:
    def processor(job: RunningJob) -> None:
        if job.name == "first":
            job.add_child(NewJob({}, "child", job_id="child"))
            job.then(NewJob({}, "next", job_id="next"), on="failure")
            with recorder.tracer.start_as_current_span("part"):
                job.then(NewJob({}, "next of part", job_id="next-of-part"), on="failure")
            thread = Thread(target=job.then, args=[NewJob({}, "other", job_id="of-another-thread"), None, "failure"])
            thread.start()
            thread.join()
            job.then(NewJob({}, job_id="own", opts={"telemetry": {"metadata": "{}"}}), on="failure")
            raise UnrecoverableError

    queue.add({}, name="first")
    with worker(queue, processor, way, recorder.tracer):
        wait_until(lambda: queue.counts()["completed"] == 5, "the jobs that the first one has added")
    attempts = {(span.attributes or {})["bullmq.job.name"]: span for span in recorder.processed}
    first = attempts["first"]
    for job_id in ("child", "next", "of-another-thread"):
        assert carried_by(queue, job_id) == traceparent(first), job_id
    assert carried_by(queue, "next-of-part") == traceparent(recorder.named("part"))
    assert carried_by(queue, "own") == ""
    assert parent_of(attempts["next"]) == ids_of(first)


def test_attempts_of_jobs_of_bull_begin_a_trace_and_their_follow_ups_carry_no_context(
    open_queue: Open, recorder: Recorder
) -> None:
    def processor(job: RunningJob) -> None:
        job.then(NewJob({}), queue="next")

    plain, following = open_queue("q", "bull"), open_queue("next", "bull")
    plain.add({})
    process(plain, processor, "one by one", recorder.tracer)
    (job,) = following.page("wait")
    assert "tm" not in job.opts
    assert recorder.named("process q").parent is None


def test_a_job_without_a_context_or_with_a_damaged_one_begins_a_trace(
    queue: BullQueue, recorder: Recorder, open_queue: Open
) -> None:
    carried: list[object] = ["not JSON", "[]", "{}", '{"traceparent":7}', 7]
    jobs = [NewJob({}), *(NewJob({}, opts={"telemetry": {"metadata": one}}) for one in carried)]
    open_queue(protocol="bullmq").add_many(jobs)
    process(queue, lambda job: None, "one by one", recorder.tracer)
    assert [span.parent for span in recorder.processed] == [None] * 6


def test_a_slot_calls_the_function_of_its_tracer_once_and_exports_its_spans_when_it_ends(queue: BullQueue) -> None:
    made: list[Recorder] = []

    def tracer() -> Tracer:
        made.append(Recorder(batched=True))
        return made[-1].tracer

    ours = OurWorker(queue.handle, lambda job: ours.control.request("stop"), chunk_size=3)
    queue.add_many(NewJob({"n": n}) for n in range(3))
    assert run_slot(replace(ours.plan, tracer=tracer), 0).completed == 3
    (recorder,) = made
    assert [span.name for span in recorder.spans] == ["process q"] * 3


# batches


def raises(*_args: object, **_kwargs: object) -> Any:
    raise LookupError("no collector")


#: Methods of a tracer or of its spans, and functions of OpenTelemetry.
STEPS = (
    "start_span",
    "end",
    "record_exception",
    "set_attributes",
    "set_status",
    "add_event",
    "force_flush",
    "inject",
    "extract",
)


@pytest.fixture
def broken(step: str, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Tracer:
    """A tracer of which one step always raises."""
    start_span = recorder.tracer.start_span

    def start(*args: Any, **kwargs: Any) -> Any:
        span = start_span(*args, **kwargs)
        monkeypatch.setattr(span, step, raises)
        return span

    if step == "force_flush":
        monkeypatch.setattr(recorder.tracer.span_processor, step, raises)
    elif step in ("inject", "extract"):
        monkeypatch.setattr(f"spark_bull.core.tracing.otel.{step}", raises)
    else:
        monkeypatch.setattr(recorder.tracer, "start_span", raises if step == "start_span" else start)
    return recorder.tracer


def doubles(n: Any) -> Any:
    if (n == 13).any():
        raise ValueError("unlucky")
    return n * 2


#: A UDF that fails one number.
UDF = UdfRunner(doubles, "pandas", pa.struct([pa.field("n", pa.int64())]), pa.int64())


def batches_of(queue: BullQueue, recorder: Recorder) -> list[ReadableSpan]:
    """Processes the jobs of a queue with the UDF; returns the spans of its batches."""
    end_all(queue, runner=UDF, chunk_size=100, tracer=recorder.tracer, worker="w")
    return recorder.processed


def test_a_batch_of_a_udf_is_a_span_with_links_to_those_that_added_its_jobs(
    queue: BullQueue, recorder: Recorder
) -> None:
    first, other = queue.add({"n": 1}, name="one"), queue.add({"n": 2}, name="two")
    queue.add({"n": 3}, opts={"telemetry": {"omitContext": True}})
    queue.add({"n": 4}, opts={"telemetry": {"metadata": "damaged"}})
    adds = [ids_of(span) for span in recorder.spans]
    (batch,) = batches_of(queue, recorder)
    assert (batch.parent, batch.kind) == (None, SpanKind.CONSUMER)
    linked = [((link.context.trace_id, link.context.span_id), dict(link.attributes or {})) for link in batch.links]
    assert linked == [
        (adds[0], {"bullmq.job.id": first, "bullmq.job.name": "one"}),
        (adds[1], {"bullmq.job.id": other, "bullmq.job.name": "two"}),
    ]
    own = {"job.bulk.count": 4, "queue.operation": "process", "worker.name": "w"}
    assert own.items() <= bullmq_attributes(batch).items()
    assert (batch.status.status_code, list(batch.events)) == (StatusCode.UNSET, [])


def test_the_span_of_a_batch_tells_which_of_its_jobs_have_failed(queue: BullQueue, recorder: Recorder) -> None:
    queue.add_many(NewJob({"n": n}, job_id=f"job-{n}") for n in (12, 13, 14))
    (batch,) = batches_of(queue, recorder)
    (event,) = batch.events
    assert (event.name, dict(event.attributes or {})) == (
        "job failed",
        {"bullmq.job.id": "job-13", "bullmq.job.failed.reason": "unlucky"},
    )
    assert (batch.status.status_code, batch.status.description) == (StatusCode.ERROR, "1 of 3 jobs have failed")
    assert len(batch.links) == 3


def test_a_chunk_that_is_divided_by_name_has_a_span_for_each_batch_and_each_attempt(
    queue: BullQueue, recorder: Recorder
) -> None:
    queue.add_many(NewJob({"n": n}, name=name) for n, name in enumerate(("a", "other", "b", "other", "a")))
    named = NamedRunner(FunctionRunner({"*": lambda job: None}), {"a": UDF, "b": UDF})
    end_all(queue, runner=named, chunk_size=100, tracer=recorder.tracer, worker="w")
    found = [bullmq_attributes(span) for span in recorder.processed]
    assert sorted(str(one.get("job.bulk.count") or one["job.name"]) for one in found) == ["3", "other", "other"]


# errors of OpenTelemetry


@pytest.mark.parametrize(
    ("step", "way"),
    [
        *((step, "one by one") for step in STEPS),
        *(("start_span", "threads"), ("end", "coroutines")),
        *((step, "batch") for step in ("start_span", "end", "set_status", "add_event", "extract")),
    ],
)
def test_an_error_of_the_tracer_is_logged_once_and_changes_no_outcome(
    queue: BullQueue, recorder: Recorder, broken: Tracer, step: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    def processor(job: RunningJob) -> Any:
        if job.data["n"] == 13:
            raise ValueError("unlucky")
        return job.data["n"] * 2

    assert len(queue.add_many(NewJob({"n": n}) for n in (12, 13, 14, 13)).ids) == 4
    assert queue.add({"n": 13})
    with pytest.raises(OptionError):
        queue.add({}, priority=-1)
    caplog.clear()
    if way == "batch":
        batches_of(queue, recorder)
    else:
        process(queue, processor, way, broken)
    assert {job.returnvalue for job in queue.page("completed")} == {24, 28}
    assert [job.failed_reason for job in queue.page("failed")] == ["unlucky"] * 3
    messages = [record.getMessage() for record in caplog.records if "traces" in record.getMessage()]
    assert len(messages) == len(set(messages))
    # Contexts are injected when jobs are added, before.
    assert bool(messages) == (step != "inject")
    assert all(message.endswith("failed (LookupError: no collector)") for message in messages)


@pytest.mark.parametrize("step", ["inject"])
def test_the_current_trace_is_what_a_job_carries_or_empty_if_it_cannot_be_read(
    recorder: Recorder, step: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    assert current_trace() == "{}"
    with recorder.tracer.start_as_current_span("nightly"):
        text = current_trace()
        request.getfixturevalue("broken")
        assert current_trace() == "{}"
    assert text == f'{{"traceparent":"{traceparent(recorder.named("nightly"))}"}}'
    assert "injecting the current context failed (LookupError: no collector)" in caplog.text


def test_an_error_without_a_readable_message_is_recorded(queue: BullQueue, recorder: Recorder) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def processor(job: RunningJob) -> Any:
        raise Unreadable

    queue.add({})
    process(queue, processor, "one by one", recorder.tracer)
    assert "the message is not available" in str(recorder.named("process q").status.description)


def test_the_timeout_of_a_job_is_no_error_of_the_tracer(queue: BullQueue, recorder: Recorder) -> None:
    def step() -> None:
        raise JobTimeout("expected the job to take 1 ms at most")

    span = JobSpan(None, spans_of(recorder.tracer)._calls)
    with pytest.raises(JobTimeout):
        span._calls.run("ending a span", step)


# the argument


def check_meter(meter: object) -> None:
    check_sendable(None, meter)


@pytest.mark.parametrize(
    ("name", "kind", "used", "check"),
    [("tracer", "Tracer", spans_of, check_sendable), ("meter", "MeterProvider", meter_of, check_meter)],
)
def test_a_tracer_or_meter_is_true_or_a_function_that_returns_one_and_in_this_process_also_itself(
    recorder: Recorder, name: str, kind: str, used: Callable[[object], object], check: Callable[[object], None]
) -> None:
    own = recorder.tracer if kind == "Tracer" else MetricRecorder().provider
    assert used(None) is used(False) is None
    for good in (True, own, lambda: own):
        assert used(good) is not None
    for bad in ("yes", lambda: None, get_meter("tests")):
        with pytest.raises(
            OptionError, match=f"expected `{name}` to be True, a {kind} of OpenTelemetry, or a function"
        ):
            used(bad)
    for good in (None, False, True, lambda: own):
        check(good)
    with pytest.raises(OptionError, match=f"got a {kind}, which cannot be sent to the executors"):
        check(own)
    with pytest.raises(OptionError, match=f"expected `{name}` to be True, or a function"):
        check("yes")
