"""All verbs on one queue, without Spark, by any connection: `VERBS["process"](queue)`, for a queue with one job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from spark_bull import BullQueue, LocalWorker, NewJob, Promoter
from spark_bull.core.errors import JobMissing
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import CollectOptions, ReadOptions
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.monitor.find import describe, find_queues
from spark_bull.ops.cli.doctor.command import examine
from spark_bull.ops.cli.doctor.finding import Finding
from spark_bull.run.services.collector import Collector
from tests.support.wait import wait_until
from tests.support.web import READING, serving
from tests.support.writes import register_all


def redis_of(queue: BullQueue) -> dict[str, str]:
    """The options by which others reach the keys of a queue; settings of redis-py are in its URL."""
    return {"url": queue.handle.connection.settings.url, "prefix": queue.handle.keys.prefix}


def dispatch(queue: BullQueue) -> None:
    queue.add({}, delay=60_000)
    register_all(queue.handle, "w", [[NewJob({"n": n}) for n in range(3)]])
    assert roll_forward(queue.handle, "w").state == "finished"
    # As the program of `spark-bull dispatch` does.
    assert queue.writes()[-1].id == "w"


def inspect(queue: BullQueue) -> None:
    (job,) = queue.page("wait")
    assert queue.counts()["wait"] == 1
    assert queue.job(job.id) is not None
    assert queue.logs(job.id) == []
    assert queue.writes() == []
    assert find_queues(queue.handle.connection, queue.handle.keys.prefix, "*") == [queue.name]
    describe(queue.handle)


def process(queue: BullQueue) -> None:
    given: dict[str, Any] = {**redis_of(queue), "protocol": queue.protocol}
    with (
        LocalWorker(queue.name, lambda job: job.data["n"], **given),
        Promoter(queues=[queue.name], **given) as promoter,
    ):
        completed = queue.handle.keys["completed"]
        wait_until(lambda: queue.handle.connection.call("EXISTS", completed), "the job to complete")
        wait_until(lambda: promoter.running, "the promoter to run")


def collect(queue: BullQueue) -> None:
    options = {**redis_of(queue), "queue": queue.name, "protocol": queue.protocol}
    collector = Collector(parse_options(options, CollectOptions), "mine")
    assert collector.advance(collector.first_positions(), None) == {queue.name: 0}
    collector.close()


def manage(queue: BullQueue) -> None:
    queue.pause()
    assert queue.is_paused()
    queue.resume()
    (job,) = queue.page("wait")
    queue.remove(job.id)
    assert queue.clean() == []
    assert queue.drain(delayed=True) == 0
    queue.obliterate()


def schedule(queue: BullQueue) -> None:
    if queue.protocol != "bull-1":
        queue.upsert_scheduler("a", pattern="0 0 * * *", data={"n": 1})
        queue.upsert_scheduler("a", pattern="0 1 * * *", opts={"priority": 2})
        assert [found.id for found in queue.schedulers()] == ["a"]
        assert queue.scheduler("a") is not None
        assert queue.run_scheduler("a")
        assert queue.remove_scheduler("a")


def events(queue: BullQueue) -> None:
    with queue.events(timeout_s=0) as found:
        assert list(found) == []
    with pytest.raises(JobMissing):
        queue.wait("7")
    if queue.protocol == "bullmq":
        queue.publish("opened")


def serve(queue: BullQueue) -> None:
    """All that is read over HTTP."""
    (job,) = queue.page("wait")
    with serving(**redis_of(queue)) as web:
        paths = ["", "/jobs", "/search?text=n", f"/jobs/{job.id}", f"/jobs/{job.id}/logs"]
        paths += ["/stats", "/writes", "/ledgers", "/workers"]
        if queue.protocol != "bull-1":
            paths += ["/schedulers", "/metrics"]
        if queue.protocol == "bullmq":
            paths += [f"/jobs/{job.id}/family"]
        for path in paths:
            web.get(f"/queues/{queue.name}{path}")
        web.get("/queues")
        web.get("/jobs")
        with web.client.stream("GET", f"/api/queues/{queue.name}/events", headers=READING) as answer:
            assert answer.status_code == 200


def doctor(queue: BullQueue) -> list[Finding]:
    """What it finds."""
    options = parse_options({**redis_of(queue), "protocol": queue.protocol}, ReadOptions)
    return [*examine(options, [queue.name], ["doctor"], removes_orphans=False)]


VERBS: Final[Mapping[str, Callable[[BullQueue], object]]] = {
    "dispatch": dispatch,
    "inspect": inspect,
    "process": process,
    "collect": collect,
    "manage": manage,
    "schedule": schedule,
    "events": events,
    "serve": serve,
}
