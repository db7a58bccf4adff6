"""What is left of a job that was removed while a worker of Node held it: a hash with what the worker has written since.

Node lists, retries and removes such a job; so does each verb here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from spark_bull import EmbeddedRedis, LocalWorker
from spark_bull.core.errors import JobFailed, JobMissing
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.read_jobs import Change
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import CollectOptions, WriteOptions
from spark_bull.core.queue.events.waiting import wait_for_job
from spark_bull.core.queue.jobs.read import read_ids, read_jobs
from spark_bull.core.queue.work.claim import read_chunk
from spark_bull.core.store import server as store_server
from spark_bull.ops.cli.doctor.queues import leftovers
from spark_bull.run.services.collector import check_servers
from spark_bull.spark.staging.plan import check_write
from tests.conformance.damages import NO_PAYLOAD
from tests.support.wait import wait_until
from tests.support.work_bench import Filled, Finisher, WorkBench, column, discover_all, only_bullmq
from tests.support.worker import OurWorker

REMNANTS = ({"failedReason": "boom"}, {"atm": "1"}, {"ats": "2", "processedOn": "5"}, {"attemptsMade": "3"})


def put(bench: WorkBench, state: str, job_id: str, fields: dict[str, str] | None) -> None:
    """Leaves this of a job in a state; None: only its id."""
    Filled(bench.queue, bench.client).enter(state, [job_id])
    if fields is not None:
        bench.client.hset(bench.handle.keys.job(job_id), mapping=fields)


def findings(bench: WorkBench, check: str) -> Any:
    (found,) = [one for one in leftovers([bench.handle], removes=False) if one.check == check]
    return found


def test_every_verb_sees_what_is_left_of_a_job(bench: WorkBench) -> None:
    ids = [f"left-{number}" for number in range(len(REMNANTS))]
    for job_id, fields in zip(ids, REMNANTS, strict=True):
        put(bench, "failed", job_id, fields)
    put(bench, "failed", "gone", None)
    queue = bench.queue
    assert queue.counts()["failed"] == len(ids) + 1
    assert {job.id for job in queue.page("failed")} == set(ids)
    for chunks in (read_jobs(queue.handle), read_ids(queue.handle, [*ids, "gone", "meta"])):
        assert {job.id for chunk in chunks for job in chunk.jobs("q")} == set(ids)
    job = queue.job(ids[0])
    assert job
    assert (job.state, job.failed_reason, job.data) == ("failed", "boom", {})
    with pytest.raises(JobFailed, match="boom"):
        wait_for_job(queue.handle, ids[0], 1)
    queue.retry(ids[1])
    changes = [Change(ids[2], "retry"), *(Change(job_id, "remove") for job_id in (ids[3], "nobody", "meta"))]
    assert [changed.outcome for changed in queue.manage(changes)] == ["done", "done", "missing", "missing"]
    queue.remove(ids[0])
    assert bench.counts() == {"wait": 2, "failed": 1}
    queue.clean(state="wait")
    assert (bench.counts(), queue.job(ids[1])) == ({"failed": 1}, None)
    with pytest.raises(JobMissing):
        queue.retry("gone")


def test_a_worker_logs_and_fails_what_is_left_of_a_job_and_counts_what_is_lost(
    bench: WorkBench, caplog: pytest.LogCaptureFixture
) -> None:
    (sound,) = bench.add()
    for number, fields in enumerate(REMNANTS):
        put(bench, "wait", f"left-{number}", fields)
    for job_id in ("gone-1", "gone-2"):
        put(bench, "wait", job_id, None)
    ran = []
    with OurWorker(bench.handle, lambda job: ran.append(job.id), chunk_size=9):
        wait_until(lambda: bench.counts() == {"completed": 1, "failed": len(REMNANTS)}, "all jobs to end")
    assert ran == [sound]
    ended = bench.queue.page("failed")
    assert {job.failed_reason for job in ended} == {NO_PAYLOAD.strip("^$")}
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sum("only a remnant of it is left" in text for text in texts) == len(REMNANTS)
    (lost,) = [text for text in texts if "2 waiting jobs are lost" in text]
    assert "gone-1" in lost
    assert "maxmemory-policy" in lost
    put(bench, "wait", "gone-3", None)
    counters = WorkSettings("slot", counters=bench.handle.keys.counters("w"))
    counted = bench.work(None, 9, counters).counted
    assert (counted["claimed"], counted["lost"]) == (1, 1)
    bench.queue.retry(ended[0].id)
    claim = bench.claim()
    if bench.bullmq:
        # A query that claims jobs gets it with its reason; it is no longer there when it is removed.
        assert [job.deferred_failure for job in claim.jobs] == [NO_PAYLOAD.strip("^$")]
        assert read_chunk(bench.handle, [ended[0].id, "gone-1"]).are_there() == [True, False]
    else:
        assert (claim.jobs, bench.counts()["failed"]) == ([], len(REMNANTS))


@only_bullmq
def test_a_claim_says_why_what_is_left_of_a_job_fails(bench: WorkBench) -> None:
    put(bench, "wait", "left", REMNANTS[1])
    (job,) = bench.claim().jobs
    assert job.deferred_failure == NO_PAYLOAD.strip("^$")


def test_results_have_what_is_left_of_a_job(bench: WorkBench) -> None:
    put(bench, "failed", "left", REMNANTS[0])
    put(bench, "failed", "gone", None)
    ledger = Finisher(bench.queue, bench.client).ledger()
    discover_all(ledger)
    _, rows = ledger.rows(["failedReason"]).read(0, 9)
    found = [*zip(*(column(rows, name) for name in ("id", "there", "failedReason")), strict=True)]
    assert (b"left", b"there", b"boom") in found


def test_a_doctor_finds_and_removes_what_is_left_of_jobs(bench: WorkBench) -> None:
    assert findings(bench, "remnants").level == "ok"
    (sound,) = bench.add()
    put(bench, "failed", "left-1", {"failedReason": "boom"})
    put(bench, "wait", "left-2", {"ats": "1"})
    bench.client.hset(bench.handle.keys.job("left-3"), "atm", "1")
    bench.client.hset(bench.handle.keys.job("settings"), mapping={"theme": "dark", "name": "mine"})
    assert findings(bench, "orphans").level == "ok"
    found = findings(bench, "remnants")
    assert found.level == "warning"
    assert "3 jobs, left-1, left-2, left-3" in found.found
    assert found.repair.run() == "removed 3 remnants"
    assert findings(bench, "remnants").level == "ok"
    assert bench.counts() == {"wait": 1}
    assert bench.client.exists(bench.handle.keys.job(sound), bench.handle.keys.job("settings")) == 2
    bench.client.hset(bench.handle.keys.job("left-4"), "atm", "1")
    assert bench.queue.remove_orphans() == 1


def test_a_worker_a_collect_and_a_write_warn_once_of_a_redis_that_evicts(
    own_redis: Callable[..., EmbeddedRedis], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_redis({"maxmemory-policy": "allkeys-lru"})
    given = {"url": server.url, "queue": "q"}

    def work_once() -> None:
        with LocalWorker("q", lambda job: None, url=server.url, protocol="bullmq"):
            pass

    for run in (
        work_once,
        lambda: check_servers(parse_options(given, CollectOptions)),
        lambda: check_write(parse_options(given, WriteOptions), is_stream=False),
    ):
        monkeypatch.setattr(store_server, "_told", set())
        caplog.clear()
        run()
        run()
        (text,) = [record.getMessage() for record in caplog.records if "maxmemory-policy" in record.getMessage()]
        assert "expected maxmemory-policy noeviction" in text
        assert f"{server.port}" in text
        assert "got allkeys-lru" in text
    with Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", "noeviction")
    monkeypatch.setattr(store_server, "_told", set())
    caplog.clear()
    run()
    assert "maxmemory" not in caplog.text
