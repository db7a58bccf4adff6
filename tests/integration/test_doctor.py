"""`spark-bull doctor`: each check finds a fault that was made in a real Redis, and the repairs end it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from itertools import cycle
from unittest.mock import ANY

import pytest
from redis import Redis

from spark_bull import BullQueue, NewJob
from spark_bull.core.clock import epoch_ms
from spark_bull.core.embedded import COMPACT_SETTING, EmbeddedRedis
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.options.table import CollectOptions
from spark_bull.core.queue.events import event_log
from spark_bull.core.queue.manage import leftovers as removal
from spark_bull.core.queue.work.claim_ledger import ClaimLedger
from spark_bull.core.store.connection import Connection
from spark_bull.ops.cli import main
from spark_bull.ops.cli.doctor import queues, server
from spark_bull.ops.cli.doctor.finding import Finding
from spark_bull.ops.cli.doctor.queues import leftovers, payloads
from spark_bull.ops.cli.doctor.server import VERBS, Server, rights
from spark_bull.ops.cli.status import PROBLEMS, WARNINGS, WRONG_USAGE
from spark_bull.run.services.collector import Collector
from spark_bull.run.testing.process_all import process_all
from tests.integration.conftest import Run
from tests.integration.test_sentinel import follow
from tests.support.redis_servers import PASSWORD, STATES, USER, rules
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import each_dialect
from tests.support.writes import register_all

DAY_MS = 86_400_000
OwnRedis = Callable[..., EmbeddedRedis]

newer = pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)


def only(findings: Iterable[Finding], level: str) -> Finding:
    """The one finding, which has this level."""
    (finding,) = findings
    assert finding.level == level, finding
    return finding


# Redis


def server_of(redis: EmbeddedRedis | str, prefix: str = "bull") -> Server:
    url = redis if isinstance(redis, str) else redis.url
    connection = Connection(RedisSettings(url, retry_ms=0))
    return Server(connection, connection.server_info(), prefix)


def test_a_redis_that_keeps_nothing_is_a_problem(own_redis: OwnRedis) -> None:
    found = only(server.persistence(server_of(own_redis())), "problem")
    assert found.found == "neither AOF nor RDB snapshots: all jobs are lost when Redis restarts"
    snapshots = only(server.persistence(server_of(own_redis({"save": "3600 1000"}))), "warning")
    assert "since the last RDB snapshot (save 3600 1000)" in snapshots.found
    assert only(server.persistence(server_of(own_redis({"appendonly": "yes"}))), "ok").found == "AOF is on"


def test_a_failed_save_is_a_problem(own_redis: OwnRedis, capsys: pytest.CaptureFixture[str]) -> None:
    redis = own_redis({"appendonly": "yes"})
    with Redis.from_url(redis.url) as client:
        connection = server_of(redis).connection
        STATES["MISCONF"].begin(client)
        failed, _ = server.persistence(Server(connection, connection.call("INFO"), "bull"))
        assert (failed.level, failed.found) == ("problem", "the last save failed (rdb_last_bgsave_status)")
    connection.close()
    report = Run(capsys, redis.url, "bull").data("doctor", code=PROBLEMS)
    assert "rejects writes because it cannot save its data to disk" in report[-1]["found"]


def test_a_redis_that_evicts_keys_is_a_problem(own_redis: OwnRedis) -> None:
    redis = own_redis({"maxmemory": "4mb", "maxmemory-policy": "allkeys-random"})
    policy = only(server.eviction(server_of(redis)), "problem")
    assert "maxmemory-policy is allkeys-random" in policy.found
    assert "run: redis-cli CONFIG SET maxmemory-policy noeviction" in policy.advice
    with Redis.from_url(redis.url) as client:
        for n in range(8):
            client.set(f"k{n}", bytes(2**20))
        client.config_set("maxmemory-policy", "noeviction")
    _, evicted = server.eviction(server_of(redis))
    assert evicted.level == "problem"
    assert re.match(r"Redis has evicted \d+ keys? since its start", evicted.found)


def test_memory_that_is_nearly_full_is_reported(own_redis: OwnRedis) -> None:
    redis = own_redis()
    assert "the memory of the machine" in only(server.memory(server_of(redis)), "ok").found
    with Redis.from_url(redis.url) as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory", int(used / 0.88))
        assert "MiB used (maxmemory)" in only(server.memory(server_of(redis)), "warning").found
        client.config_set("maxmemory", used + 1)
        assert only(server.memory(server_of(redis)), "problem").advice.startswith("raise maxmemory")


def test_a_replica_is_a_problem_and_names_its_primary(own_redis: OwnRedis) -> None:
    primary, replica = own_redis(), own_redis()
    assert only(server.replication(server_of(primary)), "ok").found == "a primary with 0 replicas"
    follow(replica, primary)
    found = only(server.replication(server_of(replica)), "problem")
    assert f"a read-only replica of 127.0.0.1:{primary.port}" in found.found
    with Redis.from_url(primary.url) as client:
        wait_until(lambda: client.info("replication")["slave0"]["state"] == "online", "the replica to be online")
    assert only(server.replication(server_of(primary)), "ok").found == "a primary with 1 replica"
    lost = only(server.persistence(server_of(primary)), "problem").found
    assert lost.endswith("when Redis restarts, also on its 1 replica unless one becomes the primary before")


def test_the_clock_of_this_machine_is_compared_with_that_of_redis(redis_url: str) -> None:
    for ahead_ms, level in [(0, "ok"), (5_000, "warning"), (-3_600_000, "problem")]:
        found = only(server.clock(server_of(redis_url), lambda ahead=ahead_ms: epoch_ms() + ahead), level)
        assert re.match(rf"this machine is .* s {'behind' if ahead_ms < 0 else ''}", found.found)
    # A call that takes long shows nothing: the clocks may be equal.
    start = epoch_ms()
    before_and_after = cycle((start - 60_000, start + 60_000))
    only(server.clock(server_of(redis_url), lambda: next(before_and_after)), "ok")


# rights


def restricted(own_redis: OwnRedis, given: str) -> Server:
    redis = own_redis({"user": f"{USER} on >{PASSWORD} {given}"})
    return server_of(redis.url.replace("redis://", f"redis://{USER}:{PASSWORD}@"), "test-p")


def test_missing_rights_are_named_by_verb_and_problems_when_nothing_works(own_redis: OwnRedis) -> None:
    reader = restricted(own_redis, rules("all", "inspect", "doctor", prefix="test-p:*"))
    by_verb = {finding.found.partition(": ")[0]: finding for finding in rights(reader, VERBS)}
    assert all(finding.level == "warning" for finding in by_verb.values())
    assert not any("inspect" in name for name in by_verb)
    (dispatch,) = [finding for name, finding in by_verb.items() if name.endswith("for dispatch")]
    assert "+decrby, +del" in dispatch.found
    granting = f"leave dispatch out with --rights, or as an administrator: redis-cli ACL SETUSER {USER} +decrby +del "
    assert dispatch.advice.startswith(granting)
    assert only(rights(reader, ["inspect"]), "ok")
    without_scan = restricted(own_redis, rules(prefix="test-p:*") + " -scan")
    assert only(rights(without_scan, VERBS), "problem").found == "the user lacks 1 command for everything: +scan"
    keys = only(rights(restricted(own_redis, rules(prefix="other:*")), VERBS), "problem")
    assert keys.found == "the user may not use keys such as test-p:doctor:meta"
    assert keys.advice == f"as an administrator: redis-cli ACL SETUSER {USER} '~test-p:*'"


def test_what_may_not_be_read_is_reported_as_unchecked(own_redis: OwnRedis, capsys: pytest.CaptureFixture[str]) -> None:
    few = restricted(own_redis, rules("all", "inspect", prefix="test-p:*") + " -info")
    found = Run(capsys, few.connection.settings.url, "test-p").data("doctor", code=ANY)
    unchecked = {row["check"] for row in found if row["found"].startswith("could not check: ")}
    assert unchecked == {row["check"] for row in found if row["level"] == "unchecked"}
    assert unchecked >= {"version", "persistence", "eviction", "memory", "replication", "rights"}
    assert "clock" in {row["check"] for row in found if row["level"] == "ok"}


def test_checking_rights_runs_no_command(own_redis: OwnRedis) -> None:
    redis = own_redis()
    only(rights(server_of(redis), VERBS), "ok")
    with Redis.from_url(redis.url) as client:
        assert client.dbsize() == 0
        assert not {"cmdstat_set", "cmdstat_xadd", "cmdstat_blpop", "cmdstat_exec"} & client.info("commandstats").keys()


# queues


@each_dialect
def test_a_healthy_queue_has_no_findings(queue: BullQueue) -> None:
    queue.add({})
    queue.add({}, delay=DAY_MS)
    checks = (queues.dialect, queues.state, queues.writes, queues.stalled, queues.overdue, queues.schedulers)
    findings = [finding for check in (*checks, queues.events, queues.damaged) for finding in check(queue.handle)]
    assert {finding.level for finding in findings} == {"ok"}
    assert {finding.level for finding in leftovers([queue.handle], removes=True)} == {"ok"}


def test_a_queue_of_two_libraries_is_a_problem(queue: BullQueue) -> None:
    queue.add({})
    queue.handle.connection.call("SADD", queue.handle.keys["completed"], "7")
    found = only(queues.dialect(queue.handle), "problem")
    assert "it has a key `events` (bullmq)" in found.found
    assert "`completed` is a SET (bull-1)" in found.found


def test_a_queue_that_takes_no_jobs_gives_none_or_has_damaged_ones_is_reported(queue: BullQueue) -> None:
    queue.add({})
    queue.close_intake()
    queue.pause()
    queue.handle.connection.call("HSET", queue.handle.keys["damaged"], "7", "string")
    damaged = only(queues.damaged(queue.handle), "warning")
    assert damaged.found == "set aside, as another program has overwritten the key: 1 job"
    paused, closed = queues.state(queue.handle)
    assert (paused.level, paused.advice) == ("warning", "spark-bull resume mail")
    assert (closed.level, closed.advice) == ("warning", "spark-bull open-intake mail")


def test_unfinished_writes_are_finished_and_lost_ones_are_reported(queue: BullQueue) -> None:
    handle = queue.handle
    register_all(handle, "w", [[NewJob({"n": n}) for n in range(3)]])
    assert only(queues.writes(handle), "ok").found == "1 write in progress"
    handle.connection.call("HSET", handle.keys.write("w"), "startedOn", handle.connection.now_ms() - 61_000)
    found = only(queues.writes(handle), "problem")
    assert (found.found, found.advice) == ("unfinished: 1 write, 3 jobs not added yet: w", "spark-bull recover mail")
    assert found.repair.run() == "finished 1 write"
    assert queue.counts()["wait"] == 3
    assert only(queues.writes(handle), "ok").found == "no unfinished writes"
    register_all(handle, "gone", [[NewJob({})]])
    register_all(handle, "cut", [[NewJob({})]])
    stages = handle.connection.call("KEYS", f"{handle.keys.base}spark:stage:*")
    handle.connection.call("DEL", handle.keys.write("gone"), *stages)
    handle.connection.call("HSET", handle.keys.write("cut"), "startedOn", 1)
    lost, unfinished = queues.writes(handle)
    assert (lost.level, lost.found) == ("problem", "lost in Redis after they were registered: 1 write, gone")
    assert "write cut to queue mail: chunks were gone from Redis" in unfinished.repair.run()
    handle.connection.call("ZREM", handle.keys["open_writes"], "gone")
    broken = only(queues.writes(handle), "problem")
    assert broken.found == "broken, as Redis has lost staged jobs: 1 write, 1 job not added: cut"
    assert broken.advice.endswith("spark-bull writes mail --limit 1000")


@pytest.mark.parametrize("queue", ["bull-1", "bullmq"], indirect=True)
def test_stalled_jobs_are_returned(queue: BullQueue) -> None:
    handle = queue.handle
    for job_id in ("dead", "alive", "next"):
        queue.add({}, job_id=job_id)
    for job_id in ("dead", "alive"):
        handle.connection.call("LREM", handle.keys["wait"], 1, job_id)
        handle.connection.call("LPUSH", handle.keys["active"], job_id)
    handle.connection.call("SET", handle.keys.lock("alive"), "token")
    handle.connection.call("SET", handle.keys["stalled_check"], 1, "PX", DAY_MS)
    assert "a worker checks for them, again in " in only(queues.stalled(handle), "warning").found
    handle.connection.call("DEL", handle.keys["stalled_check"])
    found = only(queues.stalled(handle), "problem")
    assert found.found == "active without a lock: 1 job, dead; no worker checks for them"
    assert found.repair.run() == "returned 1 stalled job to the queue"
    assert (queue.counts()["wait"], queue.counts()["active"]) == (2, 1)
    only(queues.stalled(handle), "ok")


def test_returning_stalled_jobs_ends_beside_a_worker_that_checks_first(queue: BullQueue) -> None:
    handle, is_over, done = queue.handle, threading.Event(), threading.Event()
    queue.add({}, job_id="a")
    handle.connection.call("RPOPLPUSH", handle.keys["wait"], handle.keys["active"])
    found = only(queues.stalled(handle), "problem")

    def check() -> None:
        while not is_over.is_set():
            handle.connection.call("SET", handle.keys["stalled_check"], 1, "PX", 20, "NX")

    def repair() -> None:
        assert "stalled job" in found.repair.run()
        done.set()

    threads = [threading.Thread(target=target, daemon=True) for target in (check, repair)]
    try:
        for thread in threads:
            thread.start()
        assert done.wait(PATIENCE_S)
    finally:
        is_over.set()
        threads[0].join()


def test_delayed_jobs_that_nobody_promotes_are_a_problem(queue: BullQueue) -> None:
    queue.add({}, job_id="late", delay=DAY_MS)
    queue.add({}, delay=DAY_MS)
    due = queue.handle.connection.now_ms() - 90_000
    queue.handle.connection.call("ZADD", queue.handle.keys["delayed"], due * 4096, "late")
    found = only(queues.overdue(queue.handle), "problem")
    assert re.match(r"1 delayed job, the first late by 1 min .*: no process promotes delayed jobs", found.found)
    assert found.advice == "start a worker, or run: spark-bull promote mail"


@newer
def test_a_scheduler_without_a_next_job_is_reported(queue: BullQueue, client: Redis) -> None:
    for schedule in ("stopped", "running", "ended"):
        queue.upsert_scheduler(schedule, pattern="0 0 1 1 *", data=schedule, end_date=epoch_ms() + 1_000 * DAY_MS)
    lose_next_job(queue, client, "stopped")
    found = only(queues.schedulers(queue.handle), "problem" if queue.protocol == "bullmq" else "warning")
    assert found.found == "stopped, the next job is missing: 1 job scheduler of 3, stopped"
    assert found.advice.partition(";")[0] == "create them again: spark-bull schedule mail stopped …"
    queue.upsert_scheduler("stopped", pattern="0 0 1 1 *")
    assert only(queues.schedulers(queue.handle), "ok").found == "3 job schedulers"


def test_a_scheduler_that_has_ended_needs_no_next_job(queue: BullQueue, client: Redis) -> None:
    end = epoch_ms() + 1_000 * DAY_MS
    queue.upsert_scheduler("limited", every=DAY_MS, limit=5, data="limited")
    queue.upsert_scheduler("every", every=DAY_MS, end_date=end, data="every")
    queue.upsert_scheduler("pattern", pattern="0 0 1 1 *", tz="UTC", end_date=end, data="pattern")
    for schedule in ("limited", "every", "pattern"):
        lose_next_job(queue, client, schedule)
    assert "3 job schedulers of 3" in only(queues.schedulers(queue.handle), "problem").found
    client.hset(queue.handle.keys.scheduler("limited"), "ic", 5)
    client.hset(queue.handle.keys.scheduler("every"), "endDate", epoch_ms() + DAY_MS // 2)
    client.hset(queue.handle.keys.scheduler("pattern"), "endDate", queue.scheduler("pattern").next + DAY_MS)
    only(queues.schedulers(queue.handle), "ok")


def lose_next_job(queue: BullQueue, client: Redis, schedule: str) -> None:
    """Deletes the job of a scheduler by hand, as someone would who does not know the library; its name is its data."""
    (job_id,) = [job.id for state in ("wait", "delayed") for job in queue.page(state) if job.data == schedule]
    client.lrem(queue.handle.keys["wait"], 0, job_id)
    client.zrem(queue.handle.keys["delayed"], job_id)
    client.delete(queue.handle.keys.job(job_id))


def test_a_stream_of_events_that_is_too_long_is_trimmed(queue: BullQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.add({})
    handle = queue.handle
    handle.connection.call("HSET", handle.keys["meta"], "opts.maxLenEvents", 1_000)
    handle.connection.pipeline([("XADD", handle.keys["events"], "*", "event", "waiting", "jobId", "1")] * 3_000)
    found = only(queues.events(handle), "warning")
    assert "with a maximum of about 1,000" in found.found
    monkeypatch.setattr(event_log, "_TRIMMED", 500)
    assert re.fullmatch(r"removed (1|2),\d\d\d events", found.repair.run())
    assert 1_000 <= handle.connection.call("XLEN", handle.keys["events"]) < 1_200
    only(queues.events(handle), "ok")


# payloads


def of_size(size: int) -> dict[str, str]:
    return {"text": "x" * (size - len('{"text":""}'))}


def payloads_on(redis: EmbeddedRedis, sizes: Iterable[int]) -> Finding:
    """Adds jobs with payloads of these sizes, works them off, and adds them again."""
    with BullQueue("mail", url=redis.url, protocol="bullmq") as queue:
        queue.add_many(NewJob(of_size(size)) for size in sizes)
        process_all(queue, lambda job: None)
        queue.add_many(NewJob(of_size(size)) for size in sizes)
        return only(payloads(queue.handle), "ok")


def test_a_longer_limit_is_advised_with_what_jobs_would_take(own_redis: OwnRedis) -> None:
    short, long = own_redis({COMPACT_SETTING: "64"}), own_redis()
    found = payloads_on(short, [200] * 5)
    assert found.found.startswith("10 of 10 sampled jobs have a field over 64 bytes: they take ")
    assert re.search(r"run: redis-cli CONFIG SET hash-max-(ziplist|listpack)-value 1024$", found.advice)
    taken = re.findall(r"take ([\d,]+) bytes each in Redis, about ([\d,]+)", found.found)[0]
    now, then = (int(size.replace(",", "")) for size in taken)
    assert payloads_on(long, [200] * 5).found.startswith("10 of 10 sampled jobs")
    with Redis.from_url(long.url) as client:
        keys = [key for key in client.scan_iter("bull:mail:*", _type="hash") if client.hexists(key, "timestamp")]
        measured = [client.memory_usage(key) for key in keys]
    assert then == pytest.approx(sum(measured) / len(measured), rel=0.1)
    assert then < 0.7 * now


def test_no_other_limit_is_advised_where_it_would_save_little(own_redis: OwnRedis) -> None:
    too_long, too_few = [2_000] * 5, [30] * 19 + [200]
    for limit, sizes, compact in (
        ("64", [30] * 5, 10),
        ("64", too_long, 0),
        ("1024", [200] * 5, 10),
        ("64", too_few, 38),
    ):
        found = payloads_on(own_redis({COMPACT_SETTING: limit}), sizes)
        assert not found.advice
        assert found.found.startswith(f"{compact} of {2 * len(sizes)} sampled jobs have no field over ")
    of_few_fields = own_redis({COMPACT_SETTING: "64", "hash-max-ziplist-entries": "3"})
    assert payloads_on(of_few_fields, [200]).found.startswith("0 of 2 sampled jobs")


def test_payloads_are_not_read_and_nothing_is_written(own_redis: OwnRedis) -> None:
    redis = own_redis()
    with BullQueue("mail", url=redis.url) as queue, Redis.from_url(redis.url) as client:
        queue.add(of_size(100))
        client.config_resetstat()
        only(payloads(queue.handle), "ok")
        commands = {name.removeprefix("cmdstat_").partition("|")[0] for name in client.info("commandstats")}
    allowed = "client config hello hkeys hstrlen info lrange memory ping zrevrange"
    assert commands <= set(allowed.split())


def test_a_queue_without_jobs_and_a_server_without_the_setting_are_no_faults(
    queue: BullQueue, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.pause()
    assert only(payloads(queue.handle), "ok").found == "no jobs whose size could be looked at"
    queue.add({})
    client.set(queue.handle.keys.job("7"), "damaged")
    client.lpush(queue.handle.keys["paused"], "7", "gone")
    assert only(payloads(queue.handle), "ok").found.startswith("1 of 1 sampled job")
    monkeypatch.setattr("spark_bull.ops.cli.doctor.queues.config", lambda connection, pattern: {})
    assert "knows no hash-max-listpack-value" in only(payloads(queue.handle), "unchecked").found


# keys that are left over


def found_by(queue: BullQueue, check: str, *, removes: bool = True) -> Finding:
    (finding,) = [finding for finding in leftovers([queue.handle], removes=removes) if finding.check == check]
    return finding


@newer
def test_orphaned_jobs_are_removed_and_nothing_else(queue: BullQueue, client: Redis) -> None:
    handle, keys = queue.handle, queue.handle.keys
    queue.add_many(NewJob({}, job_id=f"job-{n}", delay=0 if n % 2 else DAY_MS) for n in range(20))
    for n in (1, 3):
        client.lrem(keys["wait"], 1, f"job-{n}")
    client.zrem(keys["delayed"], "job-4")
    client.rpush(keys.logs("job-1"), "a row")
    client.hset(keys.job("job-1"), "deid", "twin")
    client.set(keys.deduplication("twin"), "job-1")
    client.hset(keys.job("job-4"), "deid", "taken")
    # Another queue, whose name starts with the names of this one and of the job.
    other = QueueKeys("mail:job-1", keys.prefix)
    texts = [keys.deduplication("taken"), f"{keys.base}note", keys["intake_closed"]]
    job = {"timestamp": 1, "data": "{}", "opts": "{}"}
    hashes = {f"{keys.base}settings": {"theme": "dark"}, f"{keys.base}spark:mine": job, other.job("1"): job}
    kept = [*texts, *hashes, other["failed"]]
    client.mset(dict.fromkeys(texts, "job-2"))
    for key, fields in hashes.items():
        client.hset(key, mapping=fields)
    client.zadd(other["failed"], {"1": 1})
    client.hset(keys["damaged"], "job-3", "string")
    found = found_by(queue, "orphans")
    assert (found.level, found.found) == ("warning", "in no state, so that no worker gets them: 2 jobs, job-1, job-4")
    assert found_by(queue, "orphans", removes=False).repair is None
    assert found.repair.run() == "removed 2 jobs"
    assert client.exists(*kept) == len(kept)
    assert client.exists(keys.job("job-1"), keys.logs("job-1"), keys.deduplication("twin"), keys.job("job-4")) == 0
    assert (client.exists(keys.job("job-3")), sum(queue.counts().values())) == (1, 17)
    assert found_by(queue, "orphans").level == "ok"
    assert handle.connection.call("EXISTS", *(keys.job(f"job-{n}") for n in range(20))) == 18


def test_a_job_that_gets_a_state_between_the_looks_is_not_removed(
    queue: BullQueue, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is being added by a program that writes the hash first."""
    monkeypatch.setattr(removal, "_EXAMINED", 1)
    handle = queue.handle
    queue.add({}, job_id="early")
    queue.add({}, job_id="late")
    client.delete(handle.keys["wait"])
    search = removal.OrphanSearch(handle)
    search.look([b"early", b"late"])
    client.rpush(handle.keys["wait"], "early")
    assert search.finish() == [b"late"]
    client.rpush(handle.keys["active"], "late")
    assert removal.remove_orphans(handle, [b"early", b"late"]) == 0
    assert queue.job("late") is not None


def test_orphans_are_found_in_small_portions(queue: BullQueue, client: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_CANDIDATES", 7), ("_EXAMINED", 3), ("MAX_IDS", 4), ("_REMOVED_AT_ONCE", 2)):
        monkeypatch.setattr(removal, name, value)
    queue.add_many(NewJob({}, job_id=f"job-{n}") for n in range(50))
    for n in range(0, 50, 5):
        client.lrem(queue.handle.keys["wait"], 1, f"job-{n}")
    assert found_by(queue, "orphans").repair.run() == "removed 10 jobs"
    assert queue.counts()["wait"] == 40
    assert len(list(client.scan_iter(f"{queue.handle.keys.base}job-*"))) == 40


def test_ledgers_of_queries_that_do_not_run_are_reported(
    queue: BullQueue, client: Redis, place: dict[str, str]
) -> None:
    handle, options = queue.handle, {**place, "queue": "mail", "protocol": queue.protocol}
    collector = Collector(parse_options(options, CollectOptions), "reports")
    collector.advance(collector.first_positions(), None)
    collector.close()
    queue.add({})
    list(ClaimLedger(handle, "claimer").claim(WorkSettings(sender="claimer"), 1))
    assert found_by(queue, "ledgers").found == "ledgers of 2 readers"
    claims = (handle.keys.claims("claimer"), handle.keys.claims_end("claimer"))
    for key in (handle.keys.results("reports")["track"], *claims):
        assert client.pexpire(key, 4 * DAY_MS)
    found = found_by(queue, "ledgers")
    assert found.level == "warning"
    assert "claimer for 3 d, reports for 3 d; " in found.found


# the command


def test_the_command_reports_and_repairs_after_a_confirmation(
    queue: BullQueue, client: Redis, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.add({}, job_id="orphan")
    client.delete(queue.handle.keys["wait"])
    register_all(queue.handle, "w", [[NewJob({})]])
    client.hset(queue.handle.keys.write("w"), "startedOn", 1)
    assert main([*run.common, "doctor", "--fix"]) == WRONG_USAGE
    shown = capsys.readouterr()
    assert "repairs: mail: finish 1 write: expected a terminal to ask for confirmation" in shown.err
    assert "problem   mail writes: unfinished: 1 write, 1 job not added yet: w\n" in shown.out
    assert f"          → spark-bull {' '.join(run.common)} recover mail\n" in shown.out
    assert queue.counts()["wait"] == 0
    assert "expected --remove-orphans only with --fix" in run("doctor", "--remove-orphans", code=WRONG_USAGE)

    report = run.data("doctor", "m*", "--fix", "--yes", code=PROBLEMS)
    by_check = {row["check"]: row for row in report if row["queue"] == "mail"}
    assert by_check["writes"]["repaired"] == "finished 1 write"
    assert (by_check["orphans"]["level"], by_check["orphans"]["repaired"]) == ("warning", None)
    assert {"java", "python", "packages", "persistence", "clock", "rights"} <= {row["check"] for row in report}
    report = run.data("doctor", "mail", "--fix", "--yes", "--remove-orphans", code=ANY)
    assert [row["repaired"] for row in report if row["repaired"]] == ["removed 1 job"]


def test_names_of_queues_can_not_change_the_terminal(
    run: Run, open_queue: Callable[..., BullQueue], capsys: pytest.CaptureFixture[str]
) -> None:
    name = "ma\x1b[2Jil\nok        all is well"
    open_queue(name, "bullmq").pause()
    for command in (["doctor"], ["counts", f"{name}?", "--protocol", "bull"]):
        assert main([*run.common, *command]) > 0
        shown = "".join(capsys.readouterr())
        assert "ma\\x1b[2Jil\\nok        all is well" in shown
        assert "\x1b" not in shown


def test_advice_can_be_pasted_and_has_no_secret(own_redis: OwnRedis, capsys: pytest.CaptureFixture[str]) -> None:
    name = "ma{il} $(x)"
    redis = own_redis({"user": f"{USER} on >{PASSWORD} ~* &* +@all"})
    url = redis.url.replace("redis://", f"redis://{USER}:{PASSWORD}@")
    with BullQueue(name, url=url, prefix="p") as queue:
        queue.pause()
        report = Run(capsys, url, "p").data("doctor", name, code=PROBLEMS)
        assert PASSWORD not in str(report)
        advice = {row["check"]: row["advice"] for row in report if row["advice"]}
        cli = f"redis-cli -h 127.0.0.1 -p {redis.port} --user {USER} --askpass CONFIG SET appendonly yes"
        assert advice["persistence"].endswith(f"run: {cli}")
        given = f'--url "redis://{USER}:$REDISCLI_AUTH@127.0.0.1:{redis.port}'
        assert advice["state"].startswith(f"spark-bull {given}")
        pasted = advice["state"].replace("spark-bull", f"{sys.executable} -m spark_bull.ops.cli", 1)
        subprocess.run(["sh", "-c", pasted], env=os.environ | {"REDISCLI_AUTH": PASSWORD}, check=True)
        assert not queue.is_paused()


def test_the_exit_status_is_that_of_the_worst_finding(
    own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("spark_bull.ops.cli.doctor.command.MACHINE", {})
    redis = own_redis({"appendonly": "yes"})
    run = Run(capsys, redis.url, "bull")
    run("doctor")
    BullQueue("mail", url=redis.url).pause()
    run("doctor", code=WARNINGS)
    for given, said in (("nothing", "nothing"), ("report-*", "none matches report-*")):
        report = run.data("doctor", given, code=PROBLEMS)
        assert report[-1]["found"] == f"no such queue: {said} (prefix bull)"


def test_without_redis_the_checks_of_the_machine_remain(
    own_redis: OwnRedis, capsys: pytest.CaptureFixture[str]
) -> None:
    redis = own_redis()
    redis.stop()
    report = Run(capsys, redis.url, "bull").data("doctor", code=PROBLEMS)
    assert {"java", "python", "packages"} <= {row["check"] for row in report}
    assert (report[-1]["check"], report[-1]["level"]) == ("redis", "problem")
    assert report[-1]["found"].startswith(f"expected Redis at {redis.url}, got none within 1 s of trying")
