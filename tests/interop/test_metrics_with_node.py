"""The metrics that workers of Node keep are read as Node reads them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from spark_bull.core.model.queues import QueueMetrics
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.ops.prometheus.collect import Export, collect
from spark_bull.ops.prometheus.families import as_text
from tests.support.node import NodePeer, Peer, each_peer_of

pytestmark = pytest.mark.interop

MINUTE = 60_000
#: The option of the worker, or of the queue.
METRICS = {"metrics": {"maxDataPoints": 10}}


def work(peer: NodePeer, *behaviours: str) -> None:
    """Adds jobs, and lets a worker that keeps metrics end them."""
    jobs = [{"name": "task", "data": {"$behaviour": one}, "opts": {}} for one in behaviours]
    peer.call("add", queue="q", jobs=jobs)
    peer.call("process", queue="q", opts=METRICS)
    for event in ("completed", "failed"):
        wanted = sum((one == "fail") == (event == "failed") for one in behaviours)
        peer.wait_for_events(event, wanted, source="worker")
    peer.call("stop", queue="q")


def as_node_returns(found: QueueMetrics) -> dict[str, Any]:
    meta = {"count": found.count, "prevTS": found.prev_ts, "prevCount": found.prev_count}
    return {"meta": meta, "data": list(found.data), "count": found.points}


def read_by_node(peer: NodePeer, state: str, start: int, end: int) -> dict[str, Any]:
    """What getMetrics returns; Bull's minutes are texts."""
    read: dict[str, Any] = peer.call("invoke", queue="q", method="getMetrics", args=[state, start, end])
    return read | {"data": [int(point) for point in read["data"]]}


@each_peer_of("bull-4", "bullmq")
def test_metrics_equal_those_that_node_reads(
    theirs: NodePeer, peer: Peer, queue: BullQueue, redis_url: str, prefix: str
) -> None:
    work(theirs, *["return:1"] * 3, "fail")
    for minutes, jobs in ((2, 2), (5, 1)):
        with NodePeer(peer.alias, redis_url, prefix, clock_ms=minutes * MINUTE) as later:
            work(later, *["return:1"] * jobs)
    for state in ("completed", "failed"):
        for start, end in ((0, -1), (0, 0), (1, 2), (-2, -1), (3, 1), (50, 60)):
            found = queue.metrics(state, start, end)
            assert as_node_returns(found) == read_by_node(theirs, state, start, end), (state, start, end)
    completed = queue.metrics("completed")
    # A minute may begin between two jobs.
    assert sum(completed.minutes.values()) == completed.count == 6
    assert len(completed.minutes) == completed.points + 1 >= 5
    assert sum(queue.metrics("failed").minutes.values()) == 1


# the text for Prometheus


#: A queue whose name has all characters that are escaped in labels.
ODD_QUEUE = 'a "quoted" \\ queue\nof two lines'


def text_of(redis_url: str, prefix: str, queue: str, labels: dict[str, str] | None = None) -> str:
    options = parse_options({"url": redis_url, "prefix": prefix, "queue": "*"}, ReadOptions)
    return as_text(collect(Export(options, (queue,), 10, MINUTE, 5)), labels)


@each_peer_of("bullmq")
def test_the_text_begins_with_that_of_node(theirs: NodePeer, redis_url: str, prefix: str) -> None:
    for queue in ("q", ODD_QUEUE):
        jobs = [{"name": "task", "data": {}, "opts": opts} for opts in ({}, {}, {"delay": 9 * MINUTE}, {"priority": 2})]
        theirs.call("add", queue=queue, jobs=jobs)
    flow = {"name": "parent", "queueName": "q", "data": {}, "children": [{"name": "c", "queueName": "q", "data": {}}]}
    theirs.call("flow", flow=flow)
    work(theirs, "return:1", "return:2", "fail")
    theirs.call("pause", queue="q")
    theirs.call("add", queue="q", jobs=[{"name": "task", "data": {}, "opts": {}}])
    for queue, labels in itertools.product(("q", ODD_QUEUE), (None, {"environment": 'a"b\\c', "zone": "é\n"})):
        of_node = theirs.call("invoke", queue=queue, method="exportPrometheusMetrics", args=[labels] if labels else [])
        ours = text_of(redis_url, prefix, queue, labels)
        assert ours.startswith(f"{of_node}\n# HELP spark_bull_"), f"{of_node}\n\n{ours}"
        assert "bullmq_" not in ours.removeprefix(of_node)
    assert " 0" not in theirs.call("invoke", queue="q", method="exportPrometheusMetrics", args=[]).splitlines()[-1]
