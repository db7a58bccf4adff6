"""Adding jobs, directly and staged, in every dialect.

Every script is sent again after its reply, as if the reply had been lost. The second reply must equal the first one,
and the second call must have no effect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from uuid import uuid4

import pytest
from redis import Redis

from spark_bull.core.errors import DialectError, OptionError, ParentError, SparkBullError, StagedDataLost
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import pass_batch, recover, roll_forward
from spark_bull.core.queue.dispatch.write_records import (
    WATERMARK_TTL_MS,
    Identity,
    QueuePlan,
    StagedChunk,
    discard,
    is_written,
    open_writes,
    records,
    stage_chunks,
)
from spark_bull.core.queue.handle.handle import RECORD_TTL_MS
from tests.support.jobs import HOUR
from tests.support.traffic import Died, calls_of_scripts, script_work, send_scripts_twice
from tests.support.work_bench import DIALECTS, WorkBench, each_dialect_by_name
from tests.support.writes import DAY_MS, register_all, stage, stage_all

LONG_AGO = 1_600_000_000_000
LONG = 5 * 10**11

bull_and_bullmq = pytest.mark.parametrize("dialect", ["bull", "bullmq"], indirect=True)
each_way = pytest.mark.parametrize(
    ("dialect", "way"),
    [("bull-1", "straight"), ("bull", "staged"), ("bullmq", "straight"), ("bullmq", "staged")],
    indirect=True,
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the scripts that were sent, without repetitions."""
    return send_scripts_twice(monkeypatch, alike=True)


@dataclass
class Bench(WorkBench):
    """A queue to which jobs are added directly, or staged in two parts."""

    way: str = "straight"
    chunk_size: int = 3

    def write(self, *jobs: NewJob) -> tuple[int, int]:
        """Adds jobs; returns the numbers of added jobs and of duplicates."""
        if self.way == "straight":
            straight = self.queue.add_many(jobs)
            return straight.added, straight.duplicates
        write_id = uuid4().hex
        half = len(jobs) // 2
        register_all(self.handle, write_id, [jobs[:half], [], jobs[half:]], self.chunk_size)
        record = roll_forward(self.handle, write_id)
        assert (record.jobs, record.state) == (len(jobs), "finished")
        return record.added, record.duplicates

    def numbers(self, ids: Sequence[str] | None = None) -> list[int]:
        """The numbers in the payloads of these jobs, by default of the waiting ones."""
        ids = self.ids("wait") if ids is None else ids
        return [json.loads(self.fields(job_id).get("data", "{}")).get("n") for job_id in ids]

    def fields(self, job_id: str) -> dict[str, str]:
        found = self.client.hgetall(self.handle.keys.job(job_id))
        return {name.decode(): value.decode() for name, value in found.items()}


Make = Callable[..., Bench]


@pytest.fixture
def make(client: Redis, open_queue: Callable[..., BullQueue], dialect: str, sent: list[str]) -> Make:
    def open_bench(way: str = "straight", name: str = "q", chunk_size: int = 3, **options: Any) -> Bench:
        queue = open_queue(name, dialect, chunk_size=chunk_size, **options)
        return Bench(queue, client, way=way, chunk_size=chunk_size)

    return open_bench


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "staged")


@pytest.fixture
def bench(make: Make, way: str) -> Bench:
    """A queue to which three jobs are added per call, directly or staged."""
    return make(way)


def job(number: int, **properties: Any) -> NewJob:
    return NewJob({"n": number}, **properties)


def numbered(count: int, first: int = 0, **properties: Any) -> list[NewJob]:
    return [job(n, **properties) for n in range(first, first + count)]


@pytest.mark.parametrize(
    "newest",
    [-12, 98, *(pytest.param(n, marks=pytest.mark.soak) for n in (-115, -26, 0, 7, 99, 9_999_999_995, 10**14))],
)
def test_jobs_with_payloads_names_and_options_only_are_stored_as_those_beside_other_jobs(
    make: Make, newest: int, way: str
) -> None:
    jobs = [replace(job(n, attempts=1 + n % 2), name=f"name-{n % 3}") for n in range(25)]
    found = []
    for others in ([], [job(25, lifo=True)]):
        bench = make(way, name=f"beside-{len(others)}", chunk_size=60)
        bench.client.set(bench.key("id"), newest)
        assert bench.write(*jobs, *others) == (25 + len(others), 0)
        ids = bench.ids("wait")[len(others) :]
        assert ids == [str(newest + n) for n in range(1, 26)]
        assert bench.numbers(ids) == list(range(25))
        hashes = [bench.fields(job_id) for job_id in ids]
        assert all(int(fields.pop("timestamp")) > LONG_AGO for fields in hashes)
        events = [fields for _, fields in bench.client.xrange(bench.key("events"), count=50)]
        found.append((hashes, events, bench.public()["marker"]))
    assert found[0] == found[1]


@pytest.mark.parametrize("dialect", ["bull"], indirect=True)
def test_a_chunk_of_priorities_is_added_to_a_long_list_in_parts(make: Make, sent: list[str]) -> None:
    bench = make(chunk_size=500)
    bench.client.lpush(bench.key("wait"), *(f"x{n}" for n in range(60_000)))
    priorities = [3, 1, 2] * 4
    assert bench.write(*[job(n, priority=priority) for n, priority in enumerate(priorities)]) == (12, 0)
    waiting = bench.ids("wait")
    assert bench.numbers(waiting[:12]) == sorted(range(12), key=lambda n: priorities[n])
    assert len(waiting) == 60_012
    # One call inserts at most four of these jobs.
    assert len(sent) >= 3


# duplicates


@each_way
def test_an_existing_id_is_not_added_again_and_is_counted(bench: Bench) -> None:
    assert bench.write(*[job(n, job_id=job_id) for n, job_id in enumerate("abacadbae")]) == (5, 4)
    assert bench.write(*[job(99, job_id=job_id) for job_id in "edcba"]) == (0, 5)
    assert bench.numbers() == [0, 1, 3, 5, 8]
    bench.queue.remove("a")
    assert bench.write(job(2, job_id="a")) == (1, 0)
    assert bench.numbers() == [1, 3, 5, 8, 2]


@bull_and_bullmq
def test_a_job_whose_deduplication_id_is_taken_is_not_added_and_is_counted(make: Make) -> None:
    bench = make()
    queue = bench.queue
    added = queue.add_many([job(n, deduplication="x" if n % 2 else None) for n in range(6)])
    assert (added.added, added.duplicates, added.deduplicated) == (4, 0, 2)
    assert added.ids == ["1", "2", "3", "2", "5", "2"]
    assert bench.numbers() == [0, 1, 2, 4]
    assert queue.deduplication_job_id("x") == "2"
    assert queue.add({}, deduplication={"id": "x"}) == "2"
    assert queue.add({}, deduplication="y") == "8"
    assert queue.job("2").deduplication_id == "x"
    # The id of a job comes first.
    added = queue.add_many([job(n, job_id="own" if n < 2 else None, deduplication="z") for n in range(3)])
    assert (added.ids, added.added, added.duplicates, added.deduplicated) == (["own", "own", "own"], 1, 1, 1)
    assert queue.remove_deduplication_key("x", job_id="7") is False
    assert queue.remove_deduplication_key("x", job_id="2") is True
    assert (queue.deduplication_job_id("x"), queue.remove_deduplication_key("x")) == (None, False)
    assert queue.remove_deduplication_key("y") is True
    other = make(name="written")
    register_all(other.handle, "w", [[job(n, deduplication=str(n % 4)) for n in range(10)]], 3)
    record = roll_forward(other.handle, "w")
    assert (record.jobs, record.added, record.duplicates, record.deduplicated) == (10, 4, 0, 6)
    assert other.numbers() == [0, 1, 2, 3]


@pytest.mark.parametrize("dialect", ["bull-1"], indirect=True)
def test_bull_1_has_no_deduplication_ids(make: Make) -> None:
    bench = make()
    for refused in (
        lambda: bench.queue.add({}, deduplication="x"),
        lambda: bench.queue.deduplication_job_id("x"),
        lambda: bench.queue.remove_deduplication_key("x"),
        lambda: make(deduplication={"ttl": 5}),
    ):
        with pytest.raises(DialectError, match="bull-1 has no deduplication ids"):
            refused()
    assert bench.public() == {}


def test_the_active_jobs_are_searched_only_for_those_that_have_lost_their_lock(bench: Bench) -> None:
    jobs = [job(n, deduplication={"id": str(n), "keepLastIfActive": True}) for n in range(20)]
    bench.queue.add_many(jobs)
    claimed = bench.claim(15).jobs
    bench.client.delete(*(bench.handle.keys.lock(job.id) for job in claimed[:5]))
    with script_work(bench.client, prefix=bench.handle.keys.base) as scripts:
        assert bench.queue.add_many(jobs).deduplicated == 20
    assert sum(script.walks for script in scripts) == 5
    # Beside each active job there is the next one.
    assert len(list(bench.client.scan_iter(f"{bench.handle.keys.base}dn:*"))) == 15


# time


def test_bullmq_orders_4096_delayed_jobs_per_millisecond(bench: Bench) -> None:
    due = LONG_AGO + LONG
    bench.client.zadd(bench.key("delayed"), {"before": due * 4096 + 4094})
    bench.write(*numbered(3, run_at=due, timestamp=LONG_AGO))
    assert [score - due * 4096 for _, score in bench.public()["delayed"]] == [4094, 4095, 4095, 4095]


@each_way
def test_jobs_have_the_time_of_redis_or_the_given_one(bench: Bench, dialect: str) -> None:
    before = bench.handle.connection.now_ms()
    bench.write(job(1), job(2, delay=HOUR))
    after = bench.handle.connection.now_ms()
    ((delayed, score),) = bench.public()["delayed"]
    for job_id in (*bench.ids("wait"), delayed):
        assert before <= int(bench.fields(job_id)["timestamp"]) <= after
    assert int(score) // 4096 == int(bench.fields(delayed)["timestamp"]) + HOUR
    bench.write(job(3, run_at=LONG_AGO), job(4, run_at=LONG_AGO, timestamp=LONG_AGO + 5))
    bench.write(job(5, delay=HOUR, timestamp=LONG_AGO))
    # Bull 1 compares with the clock; the others leave such jobs to the promoter.
    assert bench.numbers() == ([1, 3, 4, 5] if dialect == "bull-1" else [1, 3, 4])


# waking workers


@pytest.mark.parametrize(
    ("written", "forced", "store"),
    [
        ("bullmq:5.81.5", "auto", "paused"),
        ("bullmq:6.7.0", "auto", "wait"),
        ("bullmq:10.0.0", "auto", "wait"),
        ("bullmq-pro:7.1.0", "auto", "paused"),
        ("", "auto", "paused"),
        ("bullmq:6.7.0", "5", "paused"),
        ("bullmq:5.81.5", "6", "wait"),
    ],
)
def test_bullmq_5_and_6_store_jobs_of_a_paused_queue_differently(
    make: Make, way: str, written: str, forced: str, store: str
) -> None:
    bench = make(way, bullmq_version=forced)
    bench.client.hset(bench.key("meta"), mapping={"paused": 1, **({"version": written} if written else {})})
    bench.write(*numbered(4), job(4, priority=1), job(5, delay=HOUR))
    assert bench.numbers(bench.ids(store)) == [0, 1, 2, 3]
    assert bench.ids({"wait": "paused", "paused": "wait"}[store]) == []
    # Workers are not woken for jobs of a paused queue, only for the delayed job.
    assert [member for member, _ in bench.public()["marker"]] == ["1"]
    if written:
        assert bench.client.hget(bench.key("meta"), "version") == written.encode()


def test_the_event_stream_is_trimmed_to_its_length(make: Make, way: str) -> None:
    bench = make(way, chunk_size=500)
    bench.client.hset(bench.key("meta"), "opts.maxLenEvents", 100)
    bench.write(*numbered(1500))
    # Redis trims by whole nodes, of 100 entries each.
    assert 100 <= bench.client.xlen(bench.key("events")) <= 300


# chunks


def test_a_call_sends_at_most_a_chunk_of_jobs_or_bytes_and_a_large_job_alone(make: Make, sent: list[str]) -> None:
    bench = make(chunk_size=4, chunk_bytes=1024)
    for sizes, calls in (([], 0), ([10] * 10, 3), ([400, 400, 400, 3000, 10, 10], 4)):
        sent.clear()
        bench.queue.add_many([NewJob("x" * size) for size in sizes])
        assert len(sent) == calls
    assert [len(bench.fields(job_id)["data"]) - 2 for job_id in bench.ids("wait")[10:]] == sizes


def test_a_bad_job_stops_its_batch_before_anything_is_sent(bench: Bench) -> None:
    for jobs, said in (
        ([{"a": 1}], r"^expected a NewJob, as in NewJob\(payload\), got: dict$"),
        ([NewJob("mail", {"a": 1})], r"^expected `name` to be a text, got: \{'a': 1\}; the payload is the first"),
        ([NewJob({}, "mail"), NewJob({}, 7)], "^job 1: expected `name` to be a text, got: 7"),
        ([*numbered(5), job(5, delay=-1), *numbered(5)], "^job 5: expected `delay`"),
    ):
        with pytest.raises(OptionError, match=said):
            bench.queue.add_many(jobs)
    with pytest.raises(OptionError, match=r"^expected `job_id` to be a text, got: True"):
        bench.queue.add({}, job_id=True)
    assert bench.public() == {}


# names


def test_queue_names_follow_the_rules_of_the_library(open_queue: Callable[..., BullQueue], prefix: str) -> None:
    for name, dialects in (("a:b", ["bull-1", "bull"]), ("ü {x} *", DIALECTS), ("", [])):
        for dialect in DIALECTS:
            with nullcontext() if dialect in dialects else pytest.raises(OptionError, match="expected `queue`"):
                assert open_queue(name, dialect, prefix=f"{prefix}-{dialect}").add({}) == "1"


ANY_IDS = ["a", "007", "1e5", "a:b:c", "ü 漢"]
IDS_OF_BULL = ["a:b", "0:1:2", "7", "-7"]
NAMES_OF_KEYS = ["wait", "id", "meta", "spark:x", "de:x", "x:lock", "x:logs", "stalled-check"]


@each_dialect_by_name
def test_job_ids_follow_the_rules_of_the_library(make: Make, dialect: str) -> None:
    bench = make("straight")
    allowed = ANY_IDS + (IDS_OF_BULL if dialect != "bullmq" else [])
    for job_id in allowed:
        assert bench.write(job(1, job_id=job_id)) == (1, 0)
    assert bench.ids("wait") == allowed
    before = bench.public()
    for job_id in ["", *(IDS_OF_BULL if dialect == "bullmq" else [])]:
        with pytest.raises(OptionError, match=r"^expected `jobId`"):
            bench.write(job(1, job_id=job_id))
    for job_id in NAMES_OF_KEYS if dialect != "bullmq" else []:
        with pytest.raises(OptionError, match="not to be the name of another key of the queue"):
            bench.write(job(1, job_id=job_id))
    assert bench.public() == before


# which dialect


#: Commands that make a key which shows the dialect.
SIGNS: list[tuple[Any, ...]] = [
    ("bullmq", "HSET", "meta", "version", "bullmq:5.1.0"),
    ("bullmq", "HSET", "meta", "opts.maxLenEvents", 10),
    ("bullmq", "XADD", "events", "*", "event", "x"),
    ("bullmq", "ZADD", "marker", 0, "0"),
    ("bullmq", "INCR", "pc"),
    ("bullmq", "ZADD", "prioritized", 0, "1"),
    ("bull-1", "SADD", "completed", "1"),
    ("bull-1", "SADD", "failed", "1"),
    ("bull", "ZADD", "completed", 0, "1"),
    ("bull", "ZADD", "failed", 0, "1"),
    ("bull", "ZADD", "priority", 0, "1"),
    ("bull", "SET", "stalled-check", 1),
    ("bull", "INCR", "id"),
    ("bull", "SET", "meta-paused", 1),
]


def test_auto_detects_the_dialect_by_the_keys(client: Redis, prefix: str, open_queue: Callable[..., BullQueue]) -> None:
    for n, (dialect, command, name, *args) in enumerate(SIGNS):
        client.execute_command(command, f"{prefix}:q{n}:{name}", *args)
        assert open_queue(f"q{n}").protocol == dialect, f"{command} {name}"
    assert open_queue("new").protocol == "bullmq"


def test_a_queue_of_bull_2_is_refused(client: Redis, prefix: str, open_queue: Callable[..., BullQueue]) -> None:
    client.sadd(f"{prefix}:q:completed", "1")
    client.zadd(f"{prefix}:q:priority", {"2": 0})
    for protocol in ("auto", *DIALECTS):
        with pytest.raises(DialectError, match="expected queue q to"):
            open_queue("q", protocol)


@each_dialect_by_name
def test_auto_detects_the_dialect_of_our_own_queues_whose_writes_are_finished_only_in_it(
    make: Make, open_queue: Callable[..., BullQueue], dialect: str
) -> None:
    writing, waiting, delaying = (make(name=name) for name in ("writing", "waiting", "delaying"))
    register_all(writing.handle, "w", [numbered(4)], 3)
    waiting.queue.add({})
    delaying.queue.add({}, delay=HOUR)
    assert [open_queue(name).protocol for name in ("writing", "waiting", "delaying")] == [dialect] * 3
    for other in set(DIALECTS) - {dialect}:
        with pytest.raises(DialectError, match=f"speaks {dialect}: a write of this dialect is unfinished"):
            open_queue("writing", other)
    assert [record.state for record in open_queue("writing").recover()] == ["finished"]
    assert ("name" in writing.fields("1")) is (dialect != "bull-1")
    assert ("events" in writing.public()) is (dialect == "bullmq")


# staging


def test_staged_jobs_expire_unseen_and_registered_attempts_are_added_by_their_partitions(bench: Bench) -> None:
    handle = bench.handle
    failed = stage(handle, "w.0.99", numbered(4, 100), 3)
    second, first = stage(handle, "w.1.0", numbered(2, 7), 3), stage(handle, "w.0.0", numbered(7), 3)
    assert [(part.chunks, part.rows) for part in (first, second)] == [(3, 7), (1, 2)]
    assert bench.public() == {}
    assert bench.private() == dict.fromkeys(("spark:stage:w.0.0", "spark:stage:w.0.99", "spark:stage:w.1.0"), True)
    assert 0 < bench.client.pttl(first.stage) <= DAY_MS
    assert sum(bench.queue.counts().values()) == 0
    register("w", [QueuePlan(handle, [first, second], {})], None)
    roll_forward(handle, "w")
    assert bench.numbers() == list(range(9))
    assert bench.client.pttl(failed.stage) > 0


def test_a_registered_write_does_not_expire_and_the_record_of_a_finished_one_does(bench: Bench) -> None:
    handle = bench.handle
    register_all(handle, "w", [numbered(4), numbered(3, 4)], 3, Identity("app", 4))
    lasting = ("stage:w.0.0", "stage:w.1.0", "manifest:w", "write:w", "writes:open")
    assert bench.private() == {f"spark:{name}": False for name in lasting} | {"spark:watermark:app": True}
    assert bench.public() == {}
    seen: list[tuple[int, int, int]] = []
    record = roll_forward(handle, "w", lambda done, total: seen.append((done, total, len(bench.ids("wait")))))
    assert seen == [(3, 7, 3), (4, 7, 4), (7, 7, 7)]
    assert bench.private() == dict.fromkeys(
        ("spark:write:w", "spark:ids:w", "spark:writes:finished", "spark:watermark:app"), True
    )
    assert 0 < bench.client.pttl(handle.keys.write("w")) <= RECORD_TTL_MS
    assert 0 < bench.client.pttl(handle.keys.watermark("app")) <= WATERMARK_TTL_MS
    assert (record.id, record.queue, record.state, record.delivery) == ("w", "q", "finished", "exactly-once")
    assert (record.jobs, record.added, record.duplicates, record.app_id, record.version) == (7, 7, 0, "app", 4)
    assert record.duration_ms >= 0
    assert bench.queue.writes() == [record]


def test_records_are_read_in_portions_the_newest_first(bench: Bench) -> None:
    """A write that ends meanwhile neither hides another one nor shows it twice."""
    handle = bench.handle

    def write(write_id: str) -> None:
        register_all(handle, write_id, [])
        roll_forward(handle, write_id)

    ids = [f"w{n:03}" for n in range(230)]
    for write_id in ids:
        write(write_id)
    register_all(handle, "open", [numbered(1)])
    assert [one.id for one in bench.queue.writes(2)] == [ids[-1], "open"]
    assert [one.id for one in islice(records(handle, 3), 2)] == ids[-3:-5:-1]
    found = records(handle)
    begun = [next(found).id for _ in range(2)]
    write("later")
    roll_forward(handle, "open")
    assert begun + [one.id for one in found] == ["open", *ids[::-1]]
    assert [one.id for one in bench.queue.writes(2)] == ["later", "open"], "in the order in which they have ended"
    found = records(handle)
    next(found)
    bench.client.delete(*map(handle.keys.write, ids))
    assert len([*found]) < 100, "all records were read at once"


# identity


@pytest.mark.parametrize(("version", "written"), [(3, False), (4, False), (5, True)])
def test_a_version_is_written_once_and_lower_versions_are_not(bench: Bench, version: int, written: bool) -> None:
    handle = bench.handle
    assert register_all(handle, "first", [numbered(4)], 3, Identity("app", 4))
    roll_forward(handle, "first")
    assert is_written(handle, Identity("app", version)) is not written
    again = register_all(handle, "again", [numbered(4, 100)], 3, Identity("app", version), replace=not written)
    assert again is written
    assert not is_written(handle, Identity("other", version))
    if written:
        roll_forward(handle, "again")
    assert bench.numbers() == [0, 1, 2, 3] + ([100, 101, 102, 103] if written else [])
    assert not any("stage" in name for name in bench.private())
    assert bench.client.get(handle.keys.watermark("app")) == str(max(4, version)).encode()


def test_two_queues_are_registered_together_or_not_at_all(make: Make) -> None:
    one, other = make(name="one"), make(name="other")
    # The write replaces the queues: old jobs stay as long as it is not registered.
    one.client.rpush(one.key("wait"), "old")
    plans = [stage_all(bench.handle, "w", [numbered(4)], 3, replace=True) for bench in (one, other)]
    other.client.hdel(plans[1].parts[0].stage, 1)
    with pytest.raises(StagedDataLost, match="nothing was written") as lost:
        register("w", plans, Identity("app", 1))
    assert "stageTtlMs" in str(lost.value)
    with pytest.raises(StagedDataLost, match="expected write w"):
        roll_forward(other.handle, "w")
    assert (recover(one.handle), open_writes(one.handle)) == ([], [])
    assert (one.public(), other.public()) == ({"wait": ["old"]}, {})
    assert not is_written(one.handle, Identity("app", 1))
    # The rest still expires.
    assert one.private() == other.private() == {"spark:stage:w.0.0": True}

    plans[1] = stage_all(other.handle, "w", [numbered(4)], 3, replace=True)
    assert register("w", plans, Identity("app", 1))
    for bench in (one, other):
        roll_forward(bench.handle, "w")
        assert bench.numbers() == [0, 1, 2, 3]
        assert is_written(bench.handle, Identity("app", 1))
    assert not register("v", [stage_all(other.handle, "v", [numbered(1)])], Identity("app", 1))


# defaults


@bull_and_bullmq
def test_options_of_a_queue_are_the_defaults_of_its_jobs(make: Make) -> None:
    bench = make(attempts=3, remove_on_complete=True, opts={"keepLogs": 7}, delay=HOUR)
    plain = bench.queue.add({})
    (other,) = bench.queue.add_many([NewJob({}, attempts=5, delay=0, opts={"keepLogs": 8})]).ids
    logs = "kl" if bench.bullmq else "keepLogs"
    for job_id, own in [(plain, {"attempts": 3, logs: 7}), (other, {"attempts": 5, logs: 8})]:
        assert json.loads(bench.fields(job_id)["opts"]).items() >= (own | {"removeOnComplete": True}).items()
    assert bench.counts() == {"delayed": 1, "wait": 1}


def test_an_invalid_default_is_refused_by_the_constructor(open_queue: Callable[..., BullQueue]) -> None:
    for bad, said in (
        ({"backoff": {"delay": 3}}, "`backoff`"),
        ({"opts": {"repeat": {}}}, "`repeat`"),
        ({"opts": {"keepLogs": {1}}}, "expected `opts` to be a value that JSON can hold"),
    ):
        with pytest.raises(SparkBullError, match=said):
            open_queue(protocol="bullmq", **bad)


# a write that replaces the queue


@each_dialect_by_name
def test_a_replacing_write_removes_the_old_jobs_in_portions(make: Make, sent: list[str]) -> None:
    bench = make(chunk_size=500)
    handle = bench.handle
    bench.queue.add_many([NewJob({}, delay=HOUR if n % 2 else None) for n in range(1_200)])
    bench.queue.pause()
    assert register_all(handle, "w", [numbered(4), numbered(3, 4)], 3, replace=True)
    # The old jobs stay until the commit.
    assert sum(bench.queue.counts().values()) == 1_200
    record = roll_forward(handle, "w")
    assert sum(name.endswith("/empty") for name in sent) >= 3
    assert (record.state, record.added) == ("finished", 7)
    assert not bench.queue.is_paused()
    assert bench.numbers() == list(range(7))
    assert sum(bench.queue.counts().values()) == 7
    assert all(bench.private().values())
    register_all(handle, "nothing", [], replace=True)
    assert roll_forward(handle, "nothing").state == "finished"
    assert bench.public() == {}


def test_a_replacing_write_can_be_cut_off_after_any_script(bench: Bench) -> None:
    """Each recovery is cut off after the first script that changes anything; in the end only the new jobs exist."""
    handle, cuts, position = bench.handle, 0, -1
    # So many that several scripts remove them.
    bench.queue.add_many([NewJob({}) for _ in range(700)])
    register_all(handle, "w", [numbered(4), numbered(3, 4)], 3, replace=True)

    def die_after_a_change(name: str, call: Callable[[], Any]) -> Any:
        nonlocal cuts, position
        reply, before = call(), position
        if name.endswith("/commit"):
            position = int(reply[1])
        if name.endswith("/empty") or position != before:
            cuts += 1
            raise Died
        return reply

    with calls_of_scripts(die_after_a_change):
        while open_writes(handle):
            with suppress(Died):
                recover(handle)
    assert cuts >= 5
    assert bench.numbers() == list(range(7))
    assert sum(bench.queue.counts().values()) == 7


def test_a_replacing_write_removes_earlier_writes_and_keeps_later_ones(bench: Bench) -> None:
    handle = bench.handle
    register_all(handle, "z-before", [numbered(4)], 3)
    register_all(handle, "broken", [numbered(7)], 3)
    bench.client.hdel(handle.keys.stage("broken.0.0"), 1)
    register_all(handle, "m-replacing", [numbered(4, 10)], 3, replace=True)
    register_all(handle, "a-behind", [numbered(4, 20)], 3)
    roll_forward(handle, "a-behind")
    assert bench.numbers() == [10, 11, 12, 13, 20, 21, 22, 23]
    states = {record.id: record.state for record in bench.queue.writes()}
    assert states == dict.fromkeys(("z-before", "m-replacing", "a-behind"), "finished") | {"broken": "broken"}
    assert open_writes(handle) == []


# what goes wrong


def test_chunks_that_are_lost_after_registration_break_the_write_and_the_rest_expires(bench: Bench) -> None:
    handle = bench.handle
    register_all(handle, "w", [numbered(7), numbered(7, 7)], 3)
    bench.client.hdel(handle.keys.stage("w.0.0"), 1)
    with pytest.raises(StagedDataLost, match="after 3 of 14 rows were committed"):
        roll_forward(handle, "w")
    assert bench.numbers() == [0, 1, 2]
    assert [(record.state, record.added) for record in bench.queue.writes()] == [("broken", 3)]
    assert open_writes(handle) == []
    assert all(bench.private().values()), bench.private()
    stages = [handle.keys.stage(f"w.{n}.0") for n in range(2)]
    assert discard(handle.connection, handle.keys, "w", stages) == 0
    assert bench.client.exists(*stages) == 2


def test_neither_a_late_task_attempt_nor_a_discard_changes_a_registered_write(bench: Bench) -> None:
    handle = bench.handle
    failed = [part.stage for part in stage_all(handle, "failed", [numbered(4), numbered(4)], 3).parts]
    register_all(handle, "w", [numbered(4)], 3)
    with pytest.raises(SparkBullError, match="this attempt of the task is too late"):
        stage_chunks(handle.connection, [StagedChunk(handle.keys.stage("w.0.0"), 7, b"\x80")], 1000)
    discard(handle.connection, handle.keys, "failed", [*failed, handle.keys.stage("unknown")])
    assert not bench.client.exists(*failed)
    for write_id, stages in (("w", [handle.keys.stage("w.0.0")]), ("none", [])):
        assert discard(handle.connection, handle.keys, write_id, stages) == 0
    roll_forward(handle, "w")
    assert bench.numbers() == [0, 1, 2, 3]
    stage(handle, "w.0.0", numbered(4), 3)
    assert bench.private()["spark:stage:w.0.0"], "it expires"
    assert recover(handle) == []


def test_a_micro_batch_without_rows_is_noted_unless_a_later_one_was(bench: Bench) -> None:
    handle, key = bench.handle, bench.handle.keys.watermark("query")
    for version, noted in ((0, 0), (3, 3), (1, 3)):
        pass_batch(handle, Identity("query", version))
        assert int(bench.client.get(key) or -1) == noted
    assert bench.client.pttl(key) > 399 * DAY_MS
    assert not register_all(handle, "repeated", [numbered(4)], 3, Identity("query", 3))
    assert register_all(handle, "next", [numbered(4)], 3, Identity("query", 4))


# parents


@pytest.mark.parametrize("way", ["straight", "staged"], indirect=True)
def test_jobs_whose_parent_is_missing_take_no_id_and_are_not_added(bench: Bench) -> None:
    lost = {"queue": bench.queue.name, "id": "none"}
    jobs = [job(0), job(1, parent=lost), job(2), job(3, job_id="x", parent=lost), job(4)]
    if bench.way == "staged":
        assert bench.write(*jobs) == (3, 0)
        (record,) = bench.queue.writes()
        assert (record.added, record.rejected, record.done) == (3, 2, 5)
    else:
        with pytest.raises(ParentError, match=r"^job 1: expected the parent of the job to exist"):
            bench.queue.add_many(jobs)
    assert bench.ids("wait") == ["1", "2", "3"]
    assert bench.client.get(bench.key("id")) == b"3"
    assert not bench.client.exists(*map(bench.handle.keys.job, ("x", "none:dependencies")))


def test_a_job_keeps_its_living_parent_and_never_becomes_its_own_ancestor(bench: Bench) -> None:
    queue = bench.queue
    queue.add({}, job_id="a")
    queue.add({}, job_id="b")
    queue.add({}, job_id="child", parent={"queue": queue.name, "id": "a"})
    before = bench.public() | {"id": "any"}
    loop = "expected a parent that does not depend on the job itself"
    other = "expected a job without another parent"
    for job_id, parent, said in (("child", "b", other), ("a", "child", loop), ("b", "b", loop)):
        with pytest.raises(ParentError, match=said):
            queue.add({}, job_id=job_id, parent={"queue": queue.name, "id": parent})
    assert bench.public() | {"id": "any"} == before


def test_a_parent_in_a_queue_of_another_dialect_is_refused(bench: Bench) -> None:
    other = f"{bench.handle.keys.prefix}-2:x"
    bench.client.sadd(f"{other}:completed", "1")
    with pytest.raises(DialectError, match="expected queue x to speak bullmq"):
        bench.queue.add({}, parent={"queue": other, "id": "1"})
