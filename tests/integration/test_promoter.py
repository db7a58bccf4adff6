"""Promoter and Rescuer: as services, as a command, and with many jobs."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob, OptionError, Promoter, Rescuer
from spark_bull.core.queue.dispatch.roll_forward import Callback, CallbackJob, open_callback
from spark_bull.core.queue.handle.handle import CHUNK_SIZE
from spark_bull.core.queue.work.verbs import promote_due
from spark_bull.ops.cli.main import main
from tests.integration.conftest import Run
from tests.support.traffic import script_work
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.writes import register_all

ROOT = Path(__file__).parents[2]
DAY_MS = 86_400_000
HOURS_S = 10_000.0
#: Maximum number of elements (keys, fields, ids) that a promoting script names or reads per job.
ELEMENTS_PER_JOB = 25


@pytest.fixture
def only_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a signal, a promoter checks for due jobs only after hours."""
    monkeypatch.setattr("spark_bull.run.services.promoter.MAX_PAUSE_S", HOURS_S)
    monkeypatch.setattr("spark_bull.run.services.service.RECOVER_S", HOURS_S)


@pytest.mark.usefixtures("only_signals")
@pytest.mark.parametrize("protocol", ["bull", "bullmq"])
def test_a_sleeping_promoter_wakes_for_a_job_that_is_due_or_expires_earlier(
    open_queue: Callable[..., BullQueue], place: dict[str, Any], protocol: str
) -> None:
    """The signals of the dialects differ."""
    queue = open_queue("mail", protocol, events="none")
    queue.add({"n": 0}, delay=DAY_MS)
    with Promoter(queues="mail", protocol=protocol, rescue=False, events="none", **place) as promoter:
        for n in range(1, 4):
            queue.add({"n": n}, delay=150)
            wait_until(lambda n=n: queue.counts()["wait"] == n, "the job to wait")
        wait_until(lambda: promoter.done.promoted == 3, "the promoter to count them")
        queue.add({"n": 4}, expire_after_ms=DAY_MS)
        for n in range(1, 4):
            queue.add({"n": n}, expire_after_ms=150)
            wait_until(lambda n=n: promoter.done.expired == n, "the job to expire")
    assert not promoter.running


def test_a_stopped_promoter_logs_nothing_when_its_server_ends(own_log: pytest.LogCaptureFixture) -> None:
    others = {*threading.enumerate()}
    with EmbeddedRedis() as server, BullQueue("mail", url=server.url, protocol="bullmq") as queue:
        queue.add({})
        with Promoter(server.url, ["mail"]), Redis.from_url(server.url) as client:
            wait_until(lambda: client.info("clients")["blocked_clients"] == 1, "the promoter to wait for events")
    own = {*threading.enumerate()} - others
    watches = [thread for thread in own if thread.name == "spark-bull-event stream watch"]
    wait_until(lambda: not any(watch.is_alive() for watch in watches), "its threads to end")
    assert [record.getMessage() for record in own_log.records] == []


@pytest.mark.usefixtures("only_signals")
def test_a_sleeping_promoter_wakes_for_a_callback_that_expires_with_fewer_events(
    open_queue: Callable[..., BullQueue], place: dict[str, Any], client: Redis
) -> None:
    queue = open_queue("mail", "bullmq", events="none")
    queue.add({}, expire_after_ms=DAY_MS)
    with Promoter(queues="mail", rescue=False, events="none", **place) as promoter:
        for name in ("first", "second", "third"):
            job = CallbackJob("mail", "bullmq", None, "{}", {"expireAfterMs": 150})
            open_callback(queue.handle, Callback(job, name, ("pending",)))
            key = queue.handle.keys.job(name)
            wait_until(lambda key=key: client.hget(key, "defa") == b"expired", "the callback to expire")
        assert promoter.running


def test_a_write_whose_chunks_are_gone_ends_no_promoter(
    open_queue: Callable[..., BullQueue], place: dict[str, Any], client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    broken, whole = (open_queue(name, "bullmq") for name in "ab")
    for queue in (broken, whole):
        register_all(queue.handle, "w", [[NewJob({"n": n}) for n in range(3)]], 3)
    client.delete(*client.scan_iter(f"{broken.handle.keys.base}spark:stage:*"))
    register_all(broken.handle, "later", [[NewJob({"n": n}) for n in range(2)]], 2)
    with Promoter(queues=["a", "b"], protocol="bullmq", rescue=False, **place) as promoter:
        wait_until(lambda: (broken.counts()["wait"], whole.counts()["wait"]) == (2, 3), "the other writes")
        assert promoter.running
    assert "queue a: chunks were gone from Redis after 0 of 3 rows" in caplog.text


def test_a_promoter_finds_new_queues_that_match_its_glob(
    open_queue: Callable[..., BullQueue], place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bull.run.services.service.GLOB_S", 0.05)
    later, other, second = (open_queue(name, "bullmq") for name in ("mail", "other", "mail-2"))
    with Promoter(queues="mail", **place):
        later.add({}, delay=50)
        wait_until(lambda: later.counts()["wait"] == 1, "the new queue to be found")
    other.add({}, delay=10)
    now = other.handle.connection.now_ms
    due = now() + 10
    with Promoter(queues="mail*", **place):
        for n in (1, 2):
            wait_until(lambda: now() > due, "the other queue's job to be due")
            second.add({}, delay=10)
            wait_until(lambda n=n: second.counts()["wait"] == n, "the job of the new queue to be promoted")
    assert other.counts()["delayed"] == 1


def test_several_promoters_promote_each_job_once_and_fail_each_expired_one_once(
    queue: BullQueue, client: Redis, place: dict[str, Any]
) -> None:
    """No worker runs: jobs that expire wait, are delayed, or have a priority."""
    ids = queue.add_many(NewJob({"n": n}, delay=100 + n % 50) for n in range(2_000)).ids
    kinds = ({}, {"priority": 3}, {"delay": 100})
    queue.add_many(NewJob({}, expire_after_ms=200, **kinds[n % 3]) for n in range(300))
    promoters = [Promoter(queues="mail", protocol="bullmq", **place).start() for _ in range(3)]
    wait_until(lambda: sum(one.done.expired for one in promoters) >= 300, "the other jobs to expire")
    wait_until(lambda: {job.id for job in queue.page("wait")} == {*ids}, "all jobs to be promoted")
    for promoter in promoters:
        promoter.stop()
    assert sum(promoter.done.expired for promoter in promoters) == 300
    events = [event for _, event in client.xrange(queue.handle.keys["events"])]
    failed = [event[b"jobId"] for event in events if event[b"event"] == b"failed"]
    promoted = [
        event[b"jobId"] for event in events if (event[b"event"], event.get(b"prev")) == (b"waiting", b"delayed")
    ]
    assert len({*failed}) == len(failed) == 300
    assert len({*promoted}) == len(promoted) >= 2_000


def test_a_rescuer_rescues_stalled_jobs(queue: BullQueue, place: dict[str, Any]) -> None:
    queue.add({})
    keys = queue.handle.keys
    queue.handle.connection.call("LMOVE", keys["wait"], keys["active"], "RIGHT", "LEFT")
    with Rescuer(queues="mail", check_ms=100, max_stalled=0, **place):
        wait_until(lambda: queue.counts()["wait"] == 1, "the job to be rescued")
    # The worker that claims it next fails it.
    assert queue.handle.connection.call("HEXISTS", keys.job("1"), "defa") == 1


def test_wrong_arguments_are_refused_by_the_constructor(redis_url: str) -> None:
    with pytest.raises(OptionError, match="`check_ms`"):
        Promoter(redis_url, check_ms=0)
    with pytest.raises(OptionError, match="prefix"):
        Promoter(redis_url, prefixx="bull")
    with pytest.raises(OptionError, match="`max_stalled`"):
        Rescuer(redis_url, max_stalled=-1)


def test_the_command_with_once_promotes_due_jobs_and_ends(
    queue: BullQueue, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.add_many([NewJob({}, delay=1), NewJob({}, delay=DAY_MS)])
    now = queue.handle.connection.now_ms()
    wait_until(lambda: queue.handle.connection.now_ms() > now + 5, "the job to be due")
    assert run.data("promote", "mail", "--once")["promoted"] == 1
    (job,) = queue.page("delayed")
    run("promote", "mail", job.id)
    assert queue.counts()["wait"] == 2
    assert main([*run.common, "promote", "meil", "--once"]) == 0
    assert capsys.readouterr().err.startswith("spark-bull promote: no such queue: meil (prefix ")


def test_the_command_runs_until_sigterm(queue: BullQueue, run: Run) -> None:
    command = [sys.executable, "jobs/promote.py", "mail", *run.common]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        try:
            for n in (1, 2):
                queue.add({}, delay=100)
                wait_until(lambda n=n: queue.counts()["wait"] == n, "the job to be promoted")
            running.send_signal(signal.SIGTERM)
            output, _ = running.communicate(timeout=PATIENCE_S)
        finally:
            running.kill()
    assert running.returncode == 0
    assert "promoted 2" in " ".join(output.split())


@pytest.mark.parametrize("protocol", ["bull-1", "bullmq"])
def test_many_jobs_due_at_once_are_promoted_in_chunks(own_redis: Callable[..., EmbeddedRedis], protocol: str) -> None:
    """No script does more than the work of one chunk. benchmarks/process.py measures the time."""
    server = own_redis()
    jobs = 5_000
    with (
        BullQueue("mail", url=server.url, protocol=protocol, chunk_size=2_000) as queue,
        Redis.from_url(server.url) as client,
    ):
        queue.add_many(NewJob({"n": n}, delay=DAY_MS) for n in range(jobs))
        connection, delayed = queue.handle.connection, queue.handle.keys["delayed"]
        # Half of the current time is in the past: all jobs are due.
        connection.call("ZUNIONSTORE", delayed, 1, delayed, "WEIGHTS", "0.5")
        moved = []
        with script_work(client) as scripts:
            while sum(moved) < jobs:
                moved.append(promote_due(queue.handle).moved)
        assert max(moved) == CHUNK_SIZE
        assert len(moved) == jobs // CHUNK_SIZE
        assert max(script.elements for script in scripts) <= CHUNK_SIZE * ELEMENTS_PER_JOB
        assert queue.counts()["wait"] == jobs


def test_a_running_promoter_does_not_keep_the_program_alive(place: dict[str, Any]) -> None:
    code = f"from spark_bull import Promoter; Promoter(queues='mail', **{place}).start()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
