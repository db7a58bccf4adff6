"""Workers of Node process what Spark has written or called, and Spark gets the results."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row
from redis import Redis

import spark_bull
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Outcomes, Retried
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.work.claim import work
from tests.spark.conftest import Bull
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.wait import wait_until

each_peer = each_peer_of("bull-1", "bull", "bullmq")

COLUMNS = "data STRUCT<n: INT, `$behaviour`: STRING>, delay LONG, attempts INT, backoff LONG"
HOUR_MS = 3_600_000

pytestmark = pytest.mark.interop


@each_peer
def test_node_processes_jobs_dispatched_by_spark(theirs: NodePeer, queue: BullQueue, peer: Peer, bull: Bull) -> None:
    rows: list[tuple[Any, ...]] = [((n, "return:true"), None, None, None) for n in range(40)]
    rows += [((n, "return:true"), 400, None, None) for n in range(40, 50)]
    rows += [((50, "fail:2"), None, 3, 10), ((51, "fail"), None, 2, None), ((52, "fail:1"), 100, 2, None)]
    bull.write(bull.spark.createDataFrame(rows, COLUMNS).coalesce(1), protocol=peer.dialect)

    theirs.call("process", queue="q", concurrency=4)
    theirs.wait_for_events("completed", 52)
    wait_until(lambda: queue.counts()["failed"] == 1, "the job that always fails to be in failed")
    assert (queue.counts()["completed"], sum(queue.counts().values())) == (52, 53)
    (failed,) = queue.page("failed", 0, -1)
    assert failed.parsed("data") == {"n": 51, "$behaviour": "fail"}
    assert failed.attempts_made == 2


@each_peer
def test_an_idle_node_worker_wakes_for_our_jobs(
    theirs: NodePeer, client: Redis, open_queue: Callable[..., BullQueue], peer: Peer
) -> None:
    """By our signal: without it, these workers would check for jobs after an hour (Bull 1: every five seconds)."""
    others = ids_of_clients(client)
    theirs.call("process", queue="q", concurrency=1, opts=sound_sleep(peer))
    for number, (delay, events) in enumerate([(None, "all"), (None, "none"), (300, "none")], 1):
        wait_until(lambda: ids_of_clients(client, "b") - others, "the worker to wait for jobs")
        open_queue(protocol=peer.dialect, events=events).add({"$behaviour": "return:1"}, delay=delay)
        theirs.wait_for_events("completed", number)


@each_peer_of("bullmq")
def test_an_idle_node_worker_wakes_for_a_job_that_we_delay_while_we_start_the_next_one(
    theirs: NodePeer, queue: BullQueue, client: Redis, peer: Peer
) -> None:
    """A call of Node that does both leaves the delayed job to its own worker."""
    keys = queue.handle.keys
    first, second = (queue.add({"$behaviour": "return:1"}) for _ in range(2))
    claim = work(queue.handle, WorkSettings("slot"), None, 2)
    client.delete(keys["marker"])
    others = ids_of_clients(client)
    theirs.call("process", queue="q", concurrency=1, opts=sound_sleep(peer))
    wait_until(lambda: ids_of_clients(client, "b") - others, "the worker to wait for jobs")

    # The second job waits again, without a signal to the worker.
    client.delete(keys.lock(second))
    client.lmove(keys["active"], keys["wait"], "LEFT", "RIGHT")
    outcomes = Outcomes(claim.token, retried=[Retried(first, "bad", "[]", 100, False)])
    assert [job.id for job in work(queue.handle, WorkSettings("slot"), outcomes, 1).jobs] == [second]
    (completed,) = theirs.wait_for_events("completed", 1)
    assert completed["jobId"] == first


def sound_sleep(peer: Peer) -> dict[str, Any]:
    """Options of a worker that does not check for jobs without a signal."""
    if peer.dialect == "bull-1":
        return {}
    settings = {"drainDelay": HOUR_MS // 1000, "stalledInterval": HOUR_MS}
    return settings if peer.dialect == "bullmq" else {"settings": {**settings, "guardInterval": HOUR_MS}}


def ids_of_clients(client: Redis, flag: str = "") -> set[str]:
    """The connected clients with a flag; b: those that wait in a blocking command."""
    return {one["id"] for one in client.client_list() if flag in one["flags"]}


def rows(bull: Bull, *behaviours: str) -> DataFrame:
    data = [(n, {"$behaviour": behaviour}) for n, behaviour in enumerate(behaviours)]
    return bull.spark.createDataFrame(data, "n INT, data STRUCT<`$behaviour`: STRING>")


def called(bull: Bull, frame: DataFrame, **arguments: Any) -> list[Row]:
    result = spark_bull.call(frame, "q", **{"protocol": "bullmq", **bull.options, **arguments})
    return sorted(result.collect(), key=lambda row: row["n"])


@each_peer_of("bull-1.1.3", "bull", "bullmq")
def test_results_and_errors_come_back_with_their_rows(
    bull: Bull, theirs: NodePeer, client: Redis, prefix: str, peer: Peer
) -> None:
    theirs.call("process", queue="q", concurrency=4)
    behaviours = ['return:{"ok":true}', 'return:"ada"', "return:null", "fail", "fail:2", "return:3"]
    job = {"attempts": 3, "backoff": 1}
    found = called(bull, rows(bull, *behaviours), job=job, protocol=peer.dialect, details=peer.dialect == "bull")
    results = [(row["result"], row["error"]) for row in found]
    assert [one[0] and json.loads(one[0]) for one in [results[0], results[4], results[5]]] == [
        {"ok": True},
        {"echo": {"$behaviour": "fail:2"}},
        3,
    ]
    assert results[1:4] == [("ada", None), (None, None), (None, "scripted failure 3")]
    assert len({row["jobId"] for row in found}) == len(behaviours)
    # Node has removed the jobs, and knows nothing of their parents.
    counts = theirs.call("counts", queue="q")
    assert not any(counts.values()), counts
    assert client.exists(QueueKeys("q", prefix)["open_callers"]) == 0
