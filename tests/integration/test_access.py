"""Each verb works with the rights that docs/access.md lists."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Thread
from typing import Final

import pytest
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob, Promoter
from spark_bull.core.errors import ConnectionLost, JobMissing, PermissionDenied
from spark_bull.core.model.limits import ClaimSettings
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import CollectOptions, ReadOptions
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.monitor.find import describe, find_queues
from spark_bull.core.queue.work.claim import work
from spark_bull.ops.cli.doctor.command import QUEUE, SERVER
from spark_bull.ops.cli.doctor.leftovers import leftovers
from spark_bull.ops.cli.doctor.server import Server, rights
from spark_bull.ops.prometheus.collect import Export
from spark_bull.ops.prometheus.collect import collect as collect_metrics
from spark_bull.run.services.collector import Collector
from spark_bull.run.slot.job_wait import JobWait
from tests.support.redis_servers import PASSWORD, USER, rules
from tests.support.wait import wait_until
from tests.support.web import READING, serving
from tests.support.worker import OurWorker
from tests.support.writes import register_all
from tools.access_table import MODULE, PAGE, module, with_lists

PREFIX = "test-p"


def dispatch(queue: BullQueue) -> None:
    queue.add({}, delay=60_000)
    register_all(queue.handle, "w", [[NewJob({"n": n}) for n in range(3)]])
    assert roll_forward(queue.handle, "w").state == "finished"


def inspect(queue: BullQueue) -> None:
    (job,) = queue.page("wait")
    assert queue.counts()["wait"] == 1
    assert queue.job(job.id) is not None
    assert queue.logs(job.id) == []
    assert queue.writes() == []
    assert find_queues(queue.handle.connection, PREFIX, "*") == ["q"]
    describe(queue.handle)


def process(queue: BullQueue) -> None:
    url = queue.handle.connection.settings.url
    with OurWorker(queue.handle), Promoter(url, ["q"], prefix=PREFIX, protocol=queue.protocol, retry_ms=0) as promoter:
        wait_until(lambda: "completed" in states(queue), "the job to complete")
        wait_until(lambda: promoter.running, "the promoter to run")


def states(queue: BullQueue) -> list[str]:
    keys, connection = queue.handle.keys, queue.handle.connection
    there = connection.call("EXISTS", keys["completed"])
    return ["completed"] if there else []


def collect(queue: BullQueue) -> None:
    options = {"url": queue.handle.connection.settings.url, "prefix": PREFIX, "queue": "q", "protocol": queue.protocol}
    collector = Collector(parse_options(options, CollectOptions), "mine")
    assert collector.advance(collector.first_positions(), None) == {"q": 0}
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
    with serving(url=queue.handle.connection.settings.url, prefix=PREFIX) as web:
        paths = ["", "/jobs", "/search?text=n", f"/jobs/{job.id}", f"/jobs/{job.id}/logs"]
        paths += ["/stats", "/writes", "/ledgers", "/workers"]
        if queue.protocol != "bull-1":
            paths += ["/schedulers", "/metrics"]
        if queue.protocol == "bullmq":
            paths += [f"/jobs/{job.id}/family"]
        for path in paths:
            web.get(f"/queues/q{path}")
        web.get("/queues")
        web.get("/jobs")
        with web.client.stream("GET", "/api/queues/q/events", headers=READING) as answer:
            assert answer.status_code == 200


def doctor(queue: BullQueue) -> None:
    server = Server(queue.handle.connection, queue.handle.connection.server_info(), PREFIX)
    findings = [finding for check in SERVER.values() for finding in check(server)]
    findings += [*rights(server, ["doctor"])]
    findings += [finding for check in QUEUE.values() for finding in check(queue.handle)]
    findings += leftovers([queue.handle], removes=False)
    assert "unchecked" not in {finding.level for finding in findings}


VERBS: Final[Mapping[str, Callable[[BullQueue], None]]] = {
    "dispatch": dispatch,
    "inspect": inspect,
    "process": process,
    "collect": collect,
    "manage": manage,
    "schedule": schedule,
    "events": events,
    "serve": serve,
    "doctor": doctor,
}


@pytest.mark.parametrize("protocol", ["bull-1", "bull", "bullmq"])
def test_a_verb_works_with_the_documented_rights(own_redis: Callable[..., EmbeddedRedis], protocol: str) -> None:
    server = own_redis()
    url = server.url.replace("redis://", f"redis://{USER}:{PASSWORD}@")
    with Redis.from_url(server.url) as admin:
        for verb, use in VERBS.items():
            admin.flushall()
            # Its connections end, too.
            admin.execute_command("ACL", "DELUSER", USER)
            given = rules("all", verb, prefix="test-p:*").split()
            admin.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", *given)
            with BullQueue("q", url=server.url, prefix=PREFIX, protocol=protocol) as filled:
                filled.add({"n": 0})
            with BullQueue("q", url=url, prefix=PREFIX, retry_ms=0) as queue:
                assert queue.protocol == protocol, verb
                use(queue)
                with pytest.raises(ConnectionLost, match="denied the user a required permission"):
                    queue.handle.connection.call("GET", "elsewhere:q:id")


#: Takes away all that docs/access.md calls optional.
WITHOUT: Final = {
    "rights": {"user": f"{USER} on >{PASSWORD} ~* &* +@all -client -info"},
    # A setting is a line of the configuration of Redis.
    "commands": {"rename-command": f'CLIENT ""\nrename-command INFO INFOX\nuser {USER} on >{PASSWORD} ~* &* +@all'},
}


@pytest.mark.parametrize(("missing", "protocol"), [("rights", "bullmq"), ("commands", "bull")])
def test_a_worker_needs_nothing_that_is_optional(
    own_redis: Callable[..., EmbeddedRedis],
    missing: str,
    protocol: str,
    own_log: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nothing can end a wait.
    monkeypatch.setattr("spark_bull.run.slot.job_wait.IDLE_S", 0.1)
    server = own_redis(WITHOUT[missing])
    url = server.url.replace("redis://", f"redis://{USER}:{PASSWORD}@")
    with (
        own_log.at_level(logging.WARNING, "spark_bull"),
        BullQueue("q", url=url, protocol=protocol, retry_ms=0) as queue,
    ):
        connection = queue.handle.connection
        connection.check(queue.handle.keys.prefix, ["q"], write=True)
        with OurWorker(queue.handle) as worker:
            for jobs in (1, 2):
                queue.add({})
                wait_until(lambda jobs=jobs: queue.counts()["completed"] == jobs, "the job")
        assert worker.stats is not None
        options = parse_options({"url": url, "protocol": protocol, "retryMs": "0"}, ReadOptions)
        families = {sample.family.name for sample in collect_metrics(Export(options, ("q",), 0, 60_000, 0))}
        assert "spark_bull_queue_paused" in families
        assert "spark_bull_workers" not in families
        with pytest.raises(PermissionDenied, match=r"CLIENT, which is disabled|'client(\|list)?'"):
            connection.clients()
    assert "lost Redis" not in own_log.text


def test_a_wait_that_fails_is_warned_of_once_and_not_repeated_at_once(
    own_redis: Callable[..., EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot would claim again, which succeeds, and wait again: thousands of times per second."""
    monkeypatch.setattr("spark_bull.run.slot.job_wait.RECONNECT_PAUSE_S", 10_000.0)
    server = own_redis({"user": f"{USER} on >{PASSWORD} ~* &* +@all -bzpopmin"})
    url = server.url.replace("redis://", f"redis://{USER}:{PASSWORD}@")
    said: list[str] = []
    with BullQueue("q", url=url, protocol="bullmq", retry_ms=0) as queue:
        claim = work(queue.handle, ClaimSettings("w"), None, 1)
        with JobWait(queue.handle, "w", "w", None, lambda what, why: said.append(f"{what} {why}")) as wait:
            for _ in range(2):
                wait.begin(claim)
                thread = Thread(target=wait.run)
                thread.start()
                wait_until(lambda: said, "the warning")
                thread.join(0.1)
                assert thread.is_alive()
                wait.unblock()
                thread.join()
    assert len(said) == 1
    assert "lost Redis, retrying" in said[0]


def test_the_documented_rights_are_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_lists(text) == text, "run: python tools/access_table.py"
    assert MODULE.read_text(encoding="utf-8") == module(), "run: python tools/access_table.py"
