"""Jobs that Node added and processed are read as by Node: state, fields, order, logs, workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.errors import DialectError
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.jobs.read import read_jobs
from spark_bull.core.queue.monitor.find import describe, find_queues, workers
from spark_bull.ops.cli import main
from spark_bull.run.services.promoter import Promoter, Rescuer
from tests.support.jobs import HOUR, job
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.wait import PATIENCE_S
from tests.support.work_bench import DIALECTS

pytestmark = pytest.mark.interop

each_peer = each_peer_of("bull-1", "bull", "bullmq")
Open = Callable[..., BullQueue]


def with_data(data: object, **opts: object) -> dict[str, object]:
    return {**job(**opts), "data": data}


@pytest.fixture
def read(open_queue: Open) -> Callable[[], dict[str, Job]]:
    """Reads all jobs by their ids, with the dialect detected each time."""

    def read_all() -> dict[str, Job]:
        queue = open_queue()
        jobs = [job for chunk in read_jobs(queue.handle) for job in chunk.jobs("q")]
        assert all(queue.job(job.id) == job for job in jobs)
        assert len({job.id for job in jobs}) == len(jobs) == sum(queue.counts().values())
        return {job.id: job for job in jobs}

    return read_all


def as_node_sees_it(theirs: NodePeer, job: Job) -> None:
    """Every field of the job that Node shows has the same value with us."""
    seen: dict[str, Any] = theirs.call("getJob", queue="q", jobId=job.id)
    ours: dict[str, Any] = {
        "id": job.id,
        "name": job.name,
        "data": job.parsed("data"),
        "progress": job.parsed("progress") or 0,
        "returnvalue": job.parsed("returnvalue"),
        "stacktrace": list(job.stacktrace),
        "failedReason": job.failed_reason,
        "attemptsMade": job.attempts_made,
        "attemptsStarted": job.attempts_started or 0,
        "stalledCounter": job.stalled_counter,
        "timestamp": job.timestamp,
        "processedOn": job.processed_on,
        "finishedOn": job.finished_on,
        "delay": job.delay,
        "priority": job.priority,
        "processedBy": job.processed_by,
        "deduplicationId": job.deduplication_id,
    }
    # Bull 1.0 keeps the reason in the stack trace only, and says nothing of it.
    common = {name: value for name, value in ours.items() if name in seen}
    assert common == {name: seen[name] for name in common}
    assert {"id", "data", "progress", "returnvalue", "stacktrace", "attemptsMade", "timestamp", "delay"} <= seen.keys()


def states_of(found: dict[str, Job]) -> dict[str, str | None]:
    return {job_id: job.state for job_id, job in found.items()}


@each_peer
def test_waiting_jobs_are_read_as_by_node(theirs: NodePeer, peer: Peer, read: Callable[[], dict[str, Job]]) -> None:
    jobs = [
        with_data({"n": 1, "ü": "日本"}),
        with_data([1, 2.5, None]),
        job(delay=HOUR),
        job("x", attempts=3, backoff=10),
    ]
    if peer.dialect != "bull-1":
        jobs.append(with_data({"p": 1}, priority=5))
    theirs.call("add", queue="q", jobs=jobs)
    found = read()
    prioritized = {} if peer.dialect == "bull-1" else {"5": "prioritized" if peer.dialect == "bullmq" else "wait"}
    assert states_of(found) == {"1": "wait", "2": "wait", "3": "delayed", "4": "wait", **prioritized}
    for each in found.values():
        as_node_sees_it(theirs, each)
    assert found["3"].run_at == (found["3"].timestamp or 0) + HOUR
    assert found["4"].opts["attempts"] == 3
    if prioritized:
        assert found["5"].priority == 5


@each_peer
def test_processed_and_active_jobs_are_read_as_by_node(
    theirs: NodePeer, peer: Peer, read: Callable[[], dict[str, Job]]
) -> None:
    jobs = [
        with_data({"n": 1}),
        job('progress:30;return:{"sum":[1,"ü"]}'),
        job("return:null"),
        job("fail"),
        job("fail", attempts=3),
        job("fail:1", attempts=2),
        job("fail", attempts=2, backoff=HOUR),
        job("hang"),
    ]
    theirs.call("process", queue="q", concurrency=2)
    theirs.call("add", queue="q", jobs=jobs)
    theirs.wait_for_events("completed", 4, source="worker")
    theirs.wait_for_events("failed", 6, source="worker")
    theirs.wait_for(lambda event: event["event"] == "active" and event.get("jobId") == "8")
    found = read()
    done = {"1": "completed", "2": "completed", "3": "completed", "6": "completed"}
    assert states_of(found) == {**done, "4": "failed", "5": "failed", "7": "delayed", "8": "active"}
    for each in found.values():
        as_node_sees_it(theirs, each)
    if peer.alias != "bull-1.0.0":
        assert found["4"].failed_reason == "scripted failure 1"
    if peer.dialect != "bull-1":
        assert [job.id for job in found.values() if not (job.processed_on and job.finished_on)] == ["7", "8"]


@each_peer
def test_jobs_of_a_paused_queue_are_read_as_by_node(
    theirs: NodePeer, peer: Peer, read: Callable[[], dict[str, Job]]
) -> None:
    theirs.call("add", queue="q", jobs=[with_data({"n": n}) for n in range(3)])
    theirs.call("pause", queue="q")
    theirs.call("add", queue="q", jobs=[with_data({"n": 3})])
    # BullMQ 6 leaves the jobs of a paused queue where they are.
    state = "wait" if peer.alias.startswith("bullmq-6") else "paused"
    assert states_of(read()) == dict.fromkeys("1234", state)


@each_peer
def test_a_page_is_in_node_s_order(theirs: NodePeer, peer: Peer, open_queue: Open) -> None:
    theirs.call("process", queue="q")
    theirs.call("add", queue="q", jobs=[with_data({"n": n}) for n in range(5)])
    theirs.wait_for_events("completed", 5, source="worker")
    theirs.call("stop", queue="q")
    theirs.call("add", queue="q", jobs=[with_data({"n": n}, delay=HOUR * (9 - n)) for n in range(5, 9)])
    theirs.call("add", queue="q", jobs=[with_data({"n": n}, lifo=n == 11) for n in range(9, 12)])
    queue = open_queue()
    for state in ("wait", "delayed", "completed"):
        for start, stop in ((0, -1), (1, 2)):
            ours = [job.id for job in queue.page(state, start, stop)]
            if peer.dialect == "bull-1":
                # Its getJobs counts lists from the other end, and sets have no order.
                seen = [job["id"] for job in theirs.call("getJobs", queue="q", states=[state])]
                assert sorted(seen) == sorted(job.id for job in queue.page(state))
            else:
                arguments = {"states": [state], "start": start, "end": stop, "asc": True}
                assert ours == [job["id"] for job in theirs.call("getJobs", queue="q", **arguments)]
    assert [job.id for job in queue.page("wait")] == ["12", "10", "11"]
    assert [job.id for job in queue.page("delayed")] == ["9", "8", "7", "6"]


@each_peer_of("bull", "bullmq")
def test_logs_and_workers_of_node_are_read(theirs: NodePeer, peer: Peer, open_queue: Open, prefix: str) -> None:
    theirs.call("add", queue="q", jobs=[job("log:one;log:two ü")])
    theirs.call("process", queue="q")
    theirs.wait_for_events("completed", 1)
    queue = open_queue()
    assert queue.logs("1") == ["one", "two ü"]
    connection = queue.handle.connection
    # Bull 3 gives the name to every connection of a queue, a worker's or not.
    names = [worker.name for worker in workers(connection, queue.handle.keys)]
    assert names == [None] * (len(names) if peer.alias == "bull-3.29.3" else 1) != []
    assert describe(queue.handle).version == (peer.alias.replace("-", ":") if peer.dialect == "bullmq" else None)
    assert find_queues(connection, prefix) == ["q"]


# detection


def refused(open_queue: Open, queue: str) -> list[str]:
    """The protocols that a queue refuses."""
    found = []
    for protocol in DIALECTS:
        try:
            open_queue(queue, protocol)
        except DialectError as error:
            found.append(str(error).partition(" (option `protocol`), but it speaks ")[0].split()[-1])
    return found


def others(peer: Peer) -> list[str]:
    return [dialect for dialect in DIALECTS if dialect != peer.dialect]


@each_peer
def test_a_queue_is_detected_by_any_of_its_jobs(theirs: NodePeer, peer: Peer, open_queue: Open) -> None:
    options: dict[str, dict[str, object]] = {"waiting": {}, "delayed": {"delay": HOUR}, "retried": {"attempts": 3}}
    options |= {"last": {"lifo": True}, "paused": {}}
    if peer.dialect != "bull-1":
        options["prioritised"] = {"priority": 2}
    theirs.call("pause", queue="paused")
    for queue, opts in options.items():
        theirs.call("add", queue=queue, jobs=[job(**opts)])
    for queue, behaviour in {"completed": "return:1", "failed": "fail"}.items():
        theirs.call("process", queue=queue)
        theirs.call("add", queue=queue, jobs=[job(behaviour)])
        theirs.wait_for_events(queue, 1, queue=queue)
        theirs.call("stop", queue=queue)
    for queue in (*options, "completed", "failed"):
        assert (queue, open_queue(queue).protocol) == (queue, peer.dialect)
        assert (queue, refused(open_queue, queue)) == (queue, others(peer))
    ours = open_queue("waiting").add({"to": "node"})
    theirs.call("process", queue="waiting")
    done = theirs.wait_for(lambda event: event["event"] == "completed" and event.get("jobId") == ours)
    assert done["returnvalue"] == {"echo": {"to": "node"}}


def test_a_queue_without_jobs_accepts_any_protocol(client: Redis, open_queue: Open) -> None:
    for protocol in DIALECTS * 2:
        queue = open_queue(protocol, protocol)
        assert queue.protocol == protocol
        client.incr(queue.handle.keys["id"])


@each_peer_of("bull-4", "bullmq-6")
def test_every_verb_refuses_a_wrong_protocol(
    theirs: NodePeer, peer: Peer, redis_url: str, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs.call("add", queue="q", jobs=[job()])
    for protocol in others(peer):
        for service in (Promoter, Rescuer):
            with pytest.raises(DialectError, match=f"expected queue q to speak {protocol}"):
                service(redis_url, ["q"], prefix=prefix, protocol=protocol).start().await_termination(PATIENCE_S)
        # A glob matches the queue and skips it.
        Promoter(redis_url, ["*"], prefix=prefix, protocol=protocol).once()
        where = ["--url", redis_url, "--prefix", prefix, "--protocol", protocol]
        for command in (["add", "q", "{}"], ["counts", "q"], ["promote", "q", "--once"]):
            assert main([*where, *command]) != 0
            assert f"expected queue q to speak {protocol}" in capsys.readouterr().err
    theirs.call("process", queue="q")
    done = theirs.wait_for_events("completed", 1)
    assert [event["jobId"] for event in done] == ["1"]
