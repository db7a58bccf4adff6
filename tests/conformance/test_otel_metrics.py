"""Metrics of OpenTelemetry: what slots record of the jobs that they settle, and where they export it."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.metrics import MeterProvider

import spark_bull
from spark_bull import BullQueue, NewJob, OptionError, current_trace
from spark_bull.core.tracing.tracer import check_sendable, meter_of, spans_of
from spark_bull.run.job.job_runner import Result
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.slot import run_slot
from spark_bull.run.slot.slot_queue import SlotQueue
from spark_bull.run.slot.slot_report import Failures, QueueMeter, SlotStats
from spark_bull.spark.work.udf_runner import UdfRunner
from tests.support.metrics import MetricRecorder
from tests.support.worker import OurWorker, end_all

COMPLETED, FAILED = "bullmq.jobs.completed", "bullmq.jobs.failed"
DURATION = "bullmq.job.duration"


@pytest.fixture
def recorder() -> MetricRecorder:
    return MetricRecorder()


def halves(n: Any) -> Any:
    if (n % 2 == 1).any():
        raise ValueError("an odd number")
    return n // 2


#: A UDF that fails jobs with odd numbers.
UDF = UdfRunner(halves, "pandas", pa.struct([pa.field("n", pa.int64())]), pa.int64())


def fails_if_odd(job: RunningJob) -> None:
    if job.data["n"] % 2 == 1:
        raise ValueError("an odd number")


@pytest.mark.parametrize(
    ("queue", "kind"),
    [("bull-1", "UDF"), ("bull", "threads"), ("bullmq", "one by one"), ("bullmq", "threads"), ("bullmq", "UDF")],
    indirect=["queue"],
)
def test_jobs_of_each_dialect_are_counted_by_queue_name_and_state(
    queue: BullQueue, recorder: MetricRecorder, kind: str
) -> None:
    name = None if queue.protocol == "bull-1" else "send"
    queue.add_many(NewJob({"n": n}, name=name) for n in range(5))
    more: dict[str, Any] = {"runner": UDF} if kind == "UDF" else {"concurrency": 1 if kind == "one by one" else 3}
    end_all(queue, fails_if_odd, meter=recorder.provider, **more)
    assert recorder.values(COMPLETED, "bullmq.job.name") == {name: 3}
    assert recorder.values(FAILED, "bullmq.job.name") == {name: 2}
    assert recorder.values(DURATION, "bullmq.job.state") == {"completed": 3, "failed": 2}
    assert recorder.values(COMPLETED, "bullmq.queue.name") == {"q": 3}


def test_a_parent_that_cannot_complete_is_counted_as_what_becomes_of_it(
    queue: BullQueue, recorder: MetricRecorder
) -> None:
    job_id = queue.add({})
    queue.handle.connection.call("SADD", queue.handle.keys.children(job_id), "an unfinished one")
    end_all(queue, lambda job: None, meter=recorder.provider)
    assert recorder.values(FAILED, "bullmq.queue.name") == {"q": 1}
    assert recorder.values(COMPLETED, "bullmq.queue.name") == {}


def slot_of(queue: BullQueue, recorder: MetricRecorder) -> SlotQueue:
    plan = OurWorker(queue.handle, lock_ms=3_600_000).plan
    return SlotQueue(plan, plan.queues[0], 0, SlotStats(), Failures(), {}, None, None, meter_of(recorder.provider))


def test_jobs_that_the_end_of_the_process_settles_are_counted_and_others_and_rejected_outcomes_are_not(
    queue: BullQueue, recorder: MetricRecorder
) -> None:
    queue.add_many(NewJob({"n": n}) for n in range(4))
    with slot_of(queue, recorder) as slot:
        claim = slot.work(None, 4)
        first, second, _, lost = slot.running(claim.jobs, claim.token)
        queue.handle.connection.call("DEL", queue.handle.keys.lock(lost.id))
        outcomes = slot.unsettled.new_outcomes(claim.token)
        outcomes.complete(lost.id, "null")
        assert [one.id for one in slot.work(outcomes, 0).lost] == [lost.id]
        assert recorder.exported() == []
        slot.unsettled.ended = {first.id: Result(first, None, None)}
        slot.unsettled.begun.add(second.id)
        slot.end()
        slot.return_held()
    assert queue.counts()["completed"] == 1
    assert {one["name"] for one in recorder.exported()} == {COMPLETED, DURATION}
    assert recorder.values(DURATION, "bullmq.job.state") == {"completed": 1}


def test_the_function_of_a_meter_is_called_once_and_its_provider_ends_with_the_slot(queue: BullQueue) -> None:
    made: list[Provider] = []

    class Provider(MetricRecorder):
        """The provider, and what it has when it is shut down."""

        def __init__(self) -> None:
            super().__init__()
            self.ended: list[Any] = []
            shutdown = self.provider.shutdown
            self.provider.shutdown = lambda: (self.ended.append(self.exported()), shutdown())

    def meter() -> MeterProvider:
        made.append(Provider())
        return made[-1].provider

    ours = OurWorker(queue.handle, lambda job: ours.control.request("stop"), chunk_size=3)
    queue.add_many(NewJob({"n": n}) for n in range(3))
    assert run_slot(replace(ours.plan, meter=meter), 0).completed == 3
    (provider,) = made
    (exported,) = provider.ended
    assert {one["name"] for one in exported} == {COMPLETED, DURATION}


def test_an_error_of_the_provider_is_logged_once_and_changes_no_outcome(
    queue: BullQueue, recorder: MetricRecorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(*_: object, **__: object) -> Any:
        raise LookupError("no collector")

    for method in ("get_meter", "force_flush"):
        monkeypatch.setattr(recorder.provider, method, raises)
    queue.add_many(NewJob({"n": n}) for n in range(5))
    with caplog.at_level(logging.WARNING):
        end_all(queue, fails_if_odd, meter=recorder.provider)
    assert [record.getMessage() for record in caplog.records if "metrics" in record.getMessage()] == [
        "metrics: recording jobs failed (LookupError: no collector)",
        "metrics: exporting metrics failed (LookupError: no collector)",
    ]


def test_a_queue_without_a_meter_records_no_counts(queue: BullQueue) -> None:
    with pytest.raises(OptionError, match=r"expected `meter`, such as BullQueue\(..., meter=True\), got none"):
        queue.record_counts()


def test_without_opentelemetry_a_meter_and_a_tracer_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "spark_bull.core.tracing.otel", raising=False)
    for module in ("meter", "otel"):
        monkeypatch.delattr(spark_bull.core.tracing, module, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    for call in (
        lambda: meter_of(True),
        lambda: spans_of(True),
        lambda: check_sendable(None, lambda: None),
        lambda: check_sendable(lambda: None),
        current_trace,
    ):
        with pytest.raises(OptionError, match=r"opentelemetry-api .* pip install 'spark-bull\[otel\]'"):
            call()
    assert meter_of(None) is spans_of(None) is None


@pytest.mark.parametrize("is_measured", [False, True])
def test_a_slot_without_a_meter_calls_nothing_for_metrics(
    queue: BullQueue, recorder: MetricRecorder, is_measured: bool
) -> None:
    """Plain jobs pay for no call: a slot compares its meter with None once per call of a script."""
    called: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        is_metering = isinstance(frame.f_locals.get("self"), QueueMeter) or "core/tracing" in frame.f_code.co_filename
        if event == "call" and is_metering:
            called.add(frame.f_code.co_name)

    queue.add_many(NewJob({"n": n}) for n in range(3))
    meter = recorder.provider if is_measured else None
    ours = OurWorker(queue.handle, lambda job: ours.control.request("stop"), chunk_size=3, meter=meter)
    sys.setprofile(note)
    try:
        assert ours.loop.run().completed == 3
    finally:
        sys.setprofile(None)
    assert {"add", "settled"} <= called if is_measured else called == set()
