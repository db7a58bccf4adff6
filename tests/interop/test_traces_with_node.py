"""One trace across Node and Spark, and the metrics of OpenTelemetry that both export of the same jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spark_bull import BullQueue, NewJob
from tests.support.metrics import MetricRecorder, in_order
from tests.support.node import Event, NodePeer, Peer, each_peer_of
from tests.support.wait import wait_until
from tests.support.worker import OurWorker, end_all

StartNode = Callable[..., NodePeer]

each_bullmq = each_peer_of("bullmq")

pytestmark = pytest.mark.interop


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def queue(open_queue: Callable[..., BullQueue], exporter: InMemorySpanExporter) -> BullQueue:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return open_queue(tracer=provider.get_tracer("tests"), protocol="bullmq")


@pytest.fixture(autouse=True)
def traced(theirs: NodePeer) -> None:
    theirs.call("trace")


def our_span(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = (span for span in exporter.get_finished_spans() if span.name == name)
    return span


def hex_ids(span: ReadableSpan) -> tuple[str, str]:
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def their_span(theirs: NodePeer, name: str) -> Event:
    return theirs.wait_for(lambda event: event["event"] == "span" and event["name"] == name, what=f"span {name!r}")


@each_bullmq
def test_we_process_a_job_in_the_trace_in_which_node_added_it(
    theirs: NodePeer, queue: BullQueue, exporter: InMemorySpanExporter
) -> None:
    theirs.call("add", queue="q", jobs=[{"name": "send", "data": {}, "opts": {}}])
    tracer = queue._spans._tracer
    end_all(queue, lambda job: None, tracer=tracer, worker="w")
    add, process = their_span(theirs, "add q.send"), our_span(exporter, "process q")
    assert (f"{process.parent.trace_id:032x}", f"{process.parent.span_id:016x}") == (add["traceId"], add["spanId"])


@each_bullmq
def test_node_processes_a_job_in_the_trace_in_which_we_added_it(
    theirs: NodePeer, queue: BullQueue, exporter: InMemorySpanExporter
) -> None:
    theirs.call("process", queue="q")
    queue.add({}, name="send")
    process, add = their_span(theirs, "process q"), our_span(exporter, "add q.send")
    assert (process["traceId"], process["parentSpanId"]) == hex_ids(add)


OMITS = {"telemetry": {"omitContext": True}}


def attempts_of(theirs: NodePeer) -> list[Event]:
    return [span for span in theirs.events("span") if span["name"] == "process q"]


@each_bullmq
def test_spans_have_the_names_kinds_and_attributes_of_node(
    theirs: NodePeer, queue: BullQueue, exporter: InMemorySpanExporter
) -> None:
    theirs.call("add", queue="q", jobs=[{"name": "send", "data": {}, "opts": {}}])
    theirs.call("addBulk", queue="q", jobs=[{"name": "bulk", "data": {}, "opts": {}}])
    theirs.call("process", queue="q", opts={"name": "w"})
    theirs.wait_for_events("completed", 2, source="worker")
    wait_until(lambda: len(attempts_of(theirs)) == 2, "Node's spans")
    theirs.call("stop", queue="q")
    queue.add({}, name="send")
    queue.add_many([NewJob({}, name="bulk")])
    tracer = queue._spans._tracer
    end_all(queue, lambda job: None, tracer=tracer, worker="w")
    for name, left_out in (
        ("add q.send", set()),
        # The names of all jobs: there is no limit for a bulk of ours.
        ("addBulk q", {"bullmq.job.bulk.names"}),
        # BullMQ 5 has the same time in two attributes.
        ("process q", {"bullmq.job.finished.timestamp"}),
    ):
        node_span = their_span(theirs, name)
        ours = next(span for span in exporter.get_finished_spans() if span.name == name)
        assert ours.kind.name == node_span["kind"]
        assert set(ours.attributes or {}) == set(node_span["attributes"]) - left_out
        assert [event.name for event in ours.events] == node_span["events"]


@each_bullmq
def test_jobs_have_the_options_of_node(theirs: NodePeer, queue: BullQueue) -> None:
    for telemetry in ({}, OMITS):
        opts = {"attempts": 2} | telemetry
        job = {"name": "a", "data": {}, "opts": opts}
        ids = [theirs.call(command, queue="q", jobs=[job])[0] for command in ("add", "addBulk")]
        ids += [queue.add({}, name="a", opts=opts), *queue.add_many([NewJob({}, name="a", opts=opts)]).ids]
        one, bulk, ours, our_bulk = (stored(queue, job_id) for job_id in ids)
        assert (ours, our_bulk) == (one, bulk)


def stored(queue: BullQueue, job_id: str) -> dict[str, Any]:
    """The options, with marks for the numbers of a trace."""
    job = queue.job(job_id)
    opts = job.opts
    if opts.get("tm") is False:  # addBulk of Node stores this for jobs that omit the context; add stores nothing.
        del opts["tm"]
    if "tm" in opts:
        carried = json.loads(opts["tm"])
        assert opts["tm"] == json.dumps(carried, separators=(",", ":"))
        opts["tm"] = {name: re.sub("[0-9a-f]", "x", value) for name, value in carried.items()}
    return opts


#: Jobs that end in each way that BullMQ records.
JOBS: list[dict[str, Any]] = [
    {"name": "plain", "data": {}, "opts": {}},
    {"name": "plain", "data": {}, "opts": {}},
    {"name": "again", "data": {"$behaviour": "fail:1"}, "opts": {"attempts": 2}},
    {"name": "later", "data": {"$behaviour": "fail:1"}, "opts": {"attempts": 2, "backoff": 1}},
    {"name": "bad", "data": {"$behaviour": "fail"}, "opts": {}},
    {"name": "delays", "data": {"$behaviour": "postpone:delay"}, "opts": {}},
    {"name": "limits", "data": {"$behaviour": "postpone:limit"}, "opts": {}},
    {"name": "returns", "data": {"$behaviour": "postpone:giveBack"}, "opts": {}},
    {"name": "waits", "data": {"$behaviour": "child:q;wait"}, "opts": {}},
]
#: The child of the last one is a further job.
COMPLETED, FAILED = len(JOBS), 1


@each_peer_of("bullmq")
def test_the_same_jobs_have_the_metrics_that_node_exports(
    node: StartNode, open_queue: Callable[..., BullQueue], prefix: str, peer: Peer
) -> None:
    theirs, recorder = node(peer.alias, prefix=prefix), MetricRecorder()
    theirs.call("measure")
    queue = open_queue(meter=recorder.provider, protocol="bullmq")
    theirs.call("add", queue="q", jobs=JOBS)
    assert theirs.call("exported") == [], "what is added is not recorded"
    theirs.call("process", queue="q")
    wait_until(lambda: has_ended(queue, 1), "Node's worker")
    theirs.call("stop", queue="q")

    queue.add_many(NewJob(job["data"], job["name"], opts=job["opts"]) for job in JOBS)
    assert recorder.exported() == []
    with OurWorker(queue.handle, meter=recorder.provider):
        wait_until(lambda: has_ended(queue, 2), "our worker")

    theirs.call("invoke", queue="q", method="recordJobCountsMetric")
    assert queue.record_counts() == queue.counts()
    expected = in_order(theirs.call("exported"))
    for metric in expected:
        for point in metric["points"]:
            # BullMQ 5 has the same in two attributes, one of them deprecated.
            point["attributes"].pop("bullmq.job.status", None)
    assert in_order(recorder.exported()) == expected
    assert {one["name"] for one in expected} == {
        *(f"bullmq.jobs.{state}" for state in ("completed", "failed", "delayed", "retried", "waiting")),
        *("bullmq.jobs.waiting_children", "bullmq.job.duration", "bullmq.queue.jobs"),
    }


def has_ended(queue: BullQueue, times: int) -> bool:
    counts = queue.counts()
    return (counts["completed"], counts["failed"]) == (times * COMPLETED, times * FAILED)
