"""Adding jobs, directly and staged, in every dialect.

Every script is sent again after its reply, as if the reply had been lost. The second reply must equal the first one,
and the second call must have no effect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from uuid import uuid4

import pytest
from redis import Redis

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.errors import DialectError, OptionError, ParentError, SparkBullError, StagedDataLost
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
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
from spark_bull.core.queue.work.claim import work
from spark_bull.core.store.connection import Connection
from tests.support.dump import PRIVATE, dump
from tests.support.jobs import HOUR
from tests.support.writes import DAY_MS, register_all, stage, stage_all

DIALECTS = ["bull-1", "bull", "bullmq"]
LONG_AGO = 1_600_000_000_000
LONG = 5 * 10**11
CLAIM = WorkSettings("slot", lock_ms=HOUR)

each_dialect = pytest.mark.parametrize("dialect", DIALECTS, indirect=True)
bull_and_bullmq = pytest.mark.parametrize("dialect", ["bull", "bullmq"], indirect=True)
only_bull = pytest.mark.parametrize("dialect", ["bull"], indirect=True)
each_way = pytest.mark.parametrize(
    ("dialect", "way"),
    [("bull-1", "straight"), ("bull", "staged"), ("bullmq", "straight"), ("bullmq", "staged")],
    indirect=True,
)


@dataclass
class Calls:
    """The scripts that were sent, without repetitions: name and size of the chunk."""

    sent: list[tuple[str, int]] = field(default_factory=list)

    def count(self, verb: str) -> int:
        return sum(name.endswith(f"/{verb}") for name, _ in self.sent)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()
    script = Connection.script

    def observed(self: Connection, name: str, keys: dict[str, Any], args: dict[str, Any] | None = None) -> Any:
        sizes = [len(arg) for arg in (args or {}).values() if isinstance(arg, bytes)]
        made.sent.append((name, max(sizes, default=0)))
        reply = script(self, name, keys, args)
        assert script(self, name, keys, args) == reply or name == "write/discard"
        return reply

    monkeypatch.setattr(Connection, "script", observed)
    return made


@pytest.fixture
def dialect(request: pytest.FixtureRequest) -> str:
    return getattr(request, "param", "bullmq")


@dataclass
class Bench:
    """One queue, a way to add jobs, and access to its keys in Redis."""

    client: Redis
    queue: BullQueue
    way: str = "straight"
    chunk_size: int = 3

    def add(self, *jobs: NewJob) -> tuple[int, int]:
        """Adds jobs; returns the numbers of added jobs and of duplicates."""
        if self.way == "straight":
            straight = self.queue.add_many(jobs)
            return straight.added, straight.duplicates
        write_id = uuid4().hex
        half = len(jobs) // 2
        register_all(self.queue.handle, write_id, [jobs[:half], [], jobs[half:]], self.chunk_size)
        record = roll_forward(self.queue.handle, write_id)
        assert (record.jobs, record.state) == (len(jobs), "finished")
        return record.added, record.duplicates

    def key(self, name: str) -> str:
        return self.queue.handle.keys.base + name

    def taken(self, name: str = "wait") -> list[str]:
        """Ids of a list, in the order of processing."""
        return [job_id.decode() for job_id in self.client.lrange(self.key(name), 0, -1)][::-1]

    def scores(self, name: str) -> list[tuple[str, float]]:
        return [
            (member.decode(), score) for member, score in self.client.zrange(self.key(name), 0, -1, withscores=True)
        ]

    def due(self, name: str = "delayed") -> list[str]:
        return [job_id for job_id, _ in self.scores(name)]

    def numbers(self, ids: Sequence[str]) -> list[int]:
        """The numbers in the payloads of these jobs."""
        return [json.loads(self.client.hget(self.key(job_id), "data") or b"{}").get("n") for job_id in ids]

    def fields(self, job_id: str) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.client.hgetall(self.key(job_id)).items()}

    def public(self) -> dict[str, Any]:
        whole = dump(self.client, self.queue.handle.keys.prefix, self.queue.name)
        return {name: key.value for name, key in whole.items() if not name.startswith(PRIVATE)}

    def private(self) -> dict[str, bool]:
        """Names of private keys, and whether they expire."""
        whole = dump(self.client, self.queue.handle.keys.prefix, self.queue.name)
        return {name: key.expires for name, key in whole.items() if name.startswith(PRIVATE)}


Make = Callable[..., Bench]


@pytest.fixture
def make(client: Redis, open_queue: Callable[..., BullQueue], prefix: str, dialect: str, calls: Calls) -> Make:
    def open_bench(way: str = "straight", name: str = "q", **options: Any) -> Bench:
        options = {"protocol": dialect, "chunk_size": 3, **options}
        # Bull 1 publishes outside the prefix, so the name of the queue must be unique.
        return Bench(client, open_queue(f"{name}-{prefix}", **options), way, options["chunk_size"])

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


# order


@each_dialect
def test_ids_are_returned_in_the_order_of_the_jobs(make: Make) -> None:
    queue = make().queue
    jobs = [job(n, job_id=f"own-{n}" if n % 3 == 0 else None) for n in range(8)]
    added = queue.add_many(jobs)
    # Taken in the order of the counter, which counts every job.
    assert added.ids == ["own-0", "2", "3", "own-3", "5", "6", "own-6", "8"]
    assert (added.added, added.duplicates) == (8, 0)
    assert queue.add({}, delay=HOUR) == "9"


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
        assert bench.add(*jobs, *others) == (25 + len(others), 0)
        ids = bench.taken()[len(others) :]
        assert ids == [str(newest + n) for n in range(1, 26)]
        assert bench.numbers(ids) == list(range(25))
        hashes = [bench.fields(job_id) for job_id in ids]
        assert all(int(fields.pop("timestamp")) > LONG_AGO for fields in hashes)
        events = [fields for _, fields in bench.client.xrange(bench.key("events"), count=50)]
        found.append((hashes, events, bench.scores("marker")))
    assert found[0] == found[1]


@only_bull
def test_a_chunk_of_priorities_is_added_to_a_long_list_in_parts(make: Make, calls: Calls) -> None:
    bench = make(chunk_size=500)
    bench.client.lpush(bench.key("wait"), *(f"x{n}" for n in range(60_000)))
    priorities = [3, 1, 2] * 4
    assert bench.add(*[job(n, priority=priority) for n, priority in enumerate(priorities)]) == (12, 0)
    ids = [job_id.decode() for job_id in bench.client.lrange(bench.key("wait"), -12, -1)][::-1]
    assert bench.numbers(ids) == sorted(range(12), key=lambda n: priorities[n])
    assert bench.client.llen(bench.key("wait")) == 60_012
    # One call inserts at most four of these jobs.
    assert calls.count("add") >= 3


# duplicates


@each_way
def test_an_existing_id_is_not_added_again_and_is_counted(bench: Bench) -> None:
    jobs = [job(n, job_id=job_id) for n, job_id in enumerate("abacadbae")]
    assert bench.add(*jobs) == (5, 4)
    assert bench.taken() == list("abcde")
    assert bench.numbers("abcde") == [0, 1, 3, 5, 8]
    before = {name: value for name, value in bench.public().items() if name not in ("id", "events")}
    assert bench.add(*[job(99, job_id=job_id) for job_id in "edcba"]) == (0, 5)
    assert {name: value for name, value in bench.public().items() if name not in ("id", "events")} == before
    bench.queue.remove("a")
    assert bench.add(job(2, job_id="a")) == (1, 0)
    assert bench.numbers(bench.taken()) == [1, 3, 5, 8, 2]


@bull_and_bullmq
def test_a_job_whose_deduplication_id_is_taken_is_not_added_and_is_counted(make: Make) -> None:
    bench = make()
    queue = bench.queue
    added = queue.add_many([job(n, deduplication="x" if n % 2 else None) for n in range(6)])
    assert (added.added, added.duplicates, added.deduplicated) == (4, 0, 2)
    assert added.ids == ["1", "2", "3", "2", "5", "2"]
    assert bench.numbers(bench.taken()) == [0, 1, 2, 4]
    assert queue.deduplication_job_id("x") == "2"
    assert queue.add({}, deduplication={"id": "x"}) == "2"
    assert queue.add({}, deduplication="y") == "8"
    found = queue.job("2")
    assert found.deduplication_id == "x"
    # The id of a job comes first.
    added = queue.add_many([job(n, job_id="own" if n < 2 else None, deduplication="z") for n in range(3)])
    assert (added.ids, added.added, added.duplicates, added.deduplicated) == (["own", "own", "own"], 1, 1, 1)
    queue.add({}, deduplication={"id": "t", "ttl": HOUR})
    assert 0 < bench.client.pttl(bench.key("de:t")) <= HOUR
    assert bench.client.pttl(bench.key("de:y")) == -1
    assert queue.remove_deduplication_key("x", job_id="7") is False
    assert queue.remove_deduplication_key("x", job_id="2") is True
    assert (queue.deduplication_job_id("x"), queue.remove_deduplication_key("x")) == (None, False)
    assert queue.remove_deduplication_key("y") is True
    other = make(name="written")
    register_all(other.queue.handle, "w", [[job(n, deduplication=str(n % 4)) for n in range(10)]], 3)
    record = roll_forward(other.queue.handle, "w")
    assert (record.jobs, record.added, record.duplicates, record.deduplicated) == (10, 4, 0, 6)
    assert other.numbers(other.taken()) == [0, 1, 2, 3]


@pytest.mark.parametrize("dialect", ["bull-1"], indirect=True)
def test_bull_1_has_neither_priorities_nor_deduplication_ids(make: Make) -> None:
    bench = make()
    for refused in (
        lambda: bench.queue.add({}, deduplication="x"),
        lambda: bench.queue.deduplication_job_id("x"),
        lambda: bench.queue.remove_deduplication_key("x"),
        lambda: make(deduplication={"ttl": 5}),
    ):
        with pytest.raises(DialectError, match="bull-1 has no deduplication ids"):
            refused()
    with pytest.raises(DialectError, match="expected no `priority`"):
        bench.add(job(1), job(2, priority=1))
    assert bench.public() == {}


def test_the_active_jobs_are_searched_only_for_those_that_have_lost_their_lock() -> None:
    jobs = [job(n, deduplication={"id": str(n), "keepLastIfActive": True}) for n in range(20)]
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client, BullQueue("q", url=server.url) as queue:
        queue.add_many(jobs)
        claimed = [one.id for one in work(queue.handle, CLAIM, None, 15).jobs]
        for job_id in claimed[:5]:
            client.delete(queue.handle.keys.lock(job_id))
        client.config_resetstat()
        assert queue.add_many(jobs).deduplicated == 20
        sent = client.info("commandstats")
        assert "cmdstat_lrange" not in sent
        assert sent["cmdstat_lpos"]["calls"] == 5
        # Aside of each active job there is the next one.
        assert sorted(client.scan_iter("bull:q:dn:*")) == sorted(f"bull:q:dn:{n}".encode() for n in range(15))


# time


def test_bullmq_orders_4096_delayed_jobs_per_millisecond(bench: Bench) -> None:
    due = LONG_AGO + LONG
    bench.client.zadd(bench.key("delayed"), {"before": due * 4096 + 4094})
    bench.add(*numbered(3, run_at=due, timestamp=LONG_AGO))
    assert [score - due * 4096 for _, score in bench.scores("delayed")] == [4094, 4095, 4095, 4095]


@each_way
def test_a_delay_counts_from_the_timestamp_or_the_clock_of_redis(bench: Bench, dialect: str) -> None:
    given = {"timestamp": LONG_AGO}
    bench.add(job(1, delay=LONG, **given), job(2, delay=0, **given))
    assert [int(score) // 4096 for _, score in bench.scores("delayed")] == [LONG_AGO + LONG]
    for job_id in (*bench.due(), *bench.taken()):
        assert bench.fields(job_id)["timestamp"] == str(LONG_AGO)

    before = bench.queue.handle.connection.now_ms()
    bench.add(job(3), job(4, delay=HOUR))
    after = bench.queue.handle.connection.now_ms()
    delayed, score = next(entry for entry in bench.scores("delayed") if bench.numbers([entry[0]]) == [4])
    for job_id in (bench.taken()[-1], delayed):
        assert before <= int(bench.fields(job_id)["timestamp"]) <= after
    assert int(score) // 4096 == int(bench.fields(delayed)["timestamp"]) + HOUR

    bench.add(job(5, run_at=LONG_AGO), job(6, run_at=LONG_AGO, timestamp=LONG_AGO + 5))
    assert bench.numbers(bench.taken()) == [2, 3, 5, 6]
    bench.add(job(7, delay=HOUR, **given))
    # Bull 1 compares with the clock; the others leave such jobs to the promoter.
    assert 7 in bench.numbers(bench.taken() if dialect == "bull-1" else bench.due())


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
    bench.add(*numbered(4), job(4, priority=1), job(5, delay=HOUR))
    assert bench.numbers(bench.taken(store)) == [0, 1, 2, 3]
    assert bench.taken({"wait": "paused", "paused": "wait"}[store]) == []
    # Workers are not woken for jobs of a paused queue, only for the delayed job.
    assert [member for member, _ in bench.scores("marker")] == ["1"]
    if written:
        assert bench.client.hget(bench.key("meta"), "version") == written.encode()


def test_the_event_stream_is_trimmed_to_its_length(make: Make, way: str) -> None:
    bench = make(way, chunk_size=500)
    bench.client.hset(bench.key("meta"), "opts.maxLenEvents", 100)
    bench.add(*numbered(1500))
    # Redis trims by whole nodes, of 100 entries each.
    assert 100 <= bench.client.xlen(bench.key("events")) <= 300


# chunks


def test_a_call_sends_at_most_a_chunk_of_jobs_or_bytes_and_a_large_job_alone(make: Make, calls: Calls) -> None:
    bench = make(chunk_size=4, chunk_bytes=1024)
    assert bench.queue.add_many([]).ids == []
    assert calls.sent == []
    bench.queue.add_many(numbered(10))
    assert calls.count("add") == 3
    calls.sent.clear()
    sizes = [400, 400, 400, 3000, 10, 10]
    bench.queue.add_many([NewJob("x" * size) for size in sizes])
    assert [len(bench.fields(job_id)["data"]) - 2 for job_id in bench.taken()[10:]] == sizes
    assert [size > 1200 for _, size in calls.sent] == [False, False, True, False]


def test_a_bad_job_stops_its_batch_before_anything_is_sent(make: Make) -> None:
    bench = make()
    for jobs, said in (
        ([NewJob("mail", {"a": 1})], r"row 0: expected `name` to be a text, got: \{'a': 1\}; the payload is the first"),
        ([NewJob({}, "mail"), NewJob({}, 7)], "row 1: expected `name` to be a text, got: 7"),
        ([*numbered(5), job(5, delay=-1), *numbered(5)], "row 5: expected `delay`"),
    ):
        with pytest.raises(OptionError, match=said):
            bench.queue.add_many(jobs)
    unknown = r"unknown property `{}` of a job \(did you mean `{}`\?\)"
    for properties, said in (
        ({"job_id": True}, "row 0: expected `job_id` to be a text, got: True"),
        ({"jobId": 5}, unknown.format("jobId", "job_id")),
        ({"removeOnComplete": 5}, unknown.format("removeOnComplete", "remove_on_complete")),
        ({"Delay": 5}, unknown.format("Delay", "delay")),
    ):
        with pytest.raises(OptionError, match=said):
            bench.queue.add({}, **properties)
    assert bench.public() == {}


# names


def test_queue_names_follow_the_rules_of_the_library(redis_url: str, prefix: str) -> None:
    for name, dialects in (("a:b", ["bull-1", "bull"]), ("ü {x} *", DIALECTS), ("", [])):
        for dialect in DIALECTS:
            with (
                nullcontext() if dialect in dialects else pytest.raises(OptionError, match="expected `queue`"),
                BullQueue(name, url=redis_url, prefix=f"{prefix}-{dialect}", protocol=dialect) as queue,
            ):
                assert queue.add({}) == "1"


ANY_IDS = ["a", "007", "1e5", "a:b:c", "ü 漢"]
IDS_OF_BULL = ["a:b", "0:1:2", "7", "-7"]
NAMES_OF_KEYS = ["wait", "id", "meta", "spark:x", "de:x", "x:lock", "x:logs", "stalled-check"]


@each_dialect
def test_job_ids_follow_the_rules_of_the_library(make: Make, dialect: str) -> None:
    bench = make("straight")
    allowed = ANY_IDS + (IDS_OF_BULL if dialect != "bullmq" else [])
    for job_id in allowed:
        assert bench.add(job(1, job_id=job_id)) == (1, 0)
    assert bench.taken() == allowed
    before = bench.public()
    for job_id in ["", *(IDS_OF_BULL if dialect == "bullmq" else [])]:
        with pytest.raises(OptionError, match="row 0: expected `jobId`"):
            bench.add(job(1, job_id=job_id))
    for job_id in NAMES_OF_KEYS if dialect != "bullmq" else []:
        with pytest.raises(OptionError, match="not to be the name of another key of the queue"):
            bench.add(job(1, job_id=job_id))
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


def test_auto_detects_the_dialect_by_the_keys(client: Redis, redis_url: str, prefix: str) -> None:
    for n, (dialect, command, name, *args) in enumerate(SIGNS):
        client.execute_command(command, f"{prefix}:q{n}:{name}", *args)
        with BullQueue(f"q{n}", url=redis_url, prefix=prefix) as queue:
            assert queue.protocol == dialect, f"{command} {name}"
    with BullQueue("new", url=redis_url, prefix=prefix) as queue:
        assert queue.protocol == "bullmq"


@each_dialect
def test_auto_detects_the_dialect_of_our_own_queues_whose_writes_are_finished_only_in_it(
    make: Make, redis_url: str, prefix: str, dialect: str
) -> None:
    writing, waiting, delaying = (make(name=name) for name in ("writing", "waiting", "delaying"))
    register_all(writing.queue.handle, "w", [numbered(4)], 3)
    waiting.queue.add({})
    delaying.queue.add({}, delay=HOUR)
    for bench in (waiting, delaying):
        with BullQueue(bench.queue.name, url=redis_url, prefix=prefix) as queue:
            assert queue.protocol == dialect
    for other in set(DIALECTS) - {dialect}:
        with pytest.raises(DialectError, match=f"speaks {dialect}: a write of this dialect is unfinished"):
            BullQueue(writing.queue.name, url=redis_url, prefix=prefix, protocol=other)
    with BullQueue(writing.queue.name, url=redis_url, prefix=prefix) as queue:
        assert queue.protocol == dialect
        assert [record.state for record in queue.recover()] == ["finished"]
    assert ("name" in writing.fields("1")) is (dialect != "bull-1")
    assert ("events" in writing.public()) is (dialect == "bullmq")


# staging


def test_staged_jobs_expire_unseen_and_registered_attempts_are_added_by_their_partitions(make: Make) -> None:
    bench = make()
    handle = bench.queue.handle
    failed = stage(handle, "w.0.99", numbered(4, 100), 3)
    second, first = stage(handle, "w.1.0", numbered(2, 7), 3), stage(handle, "w.0.0", numbered(7), 3)
    assert [(part.chunks, part.rows) for part in (first, second)] == [(3, 7), (1, 2)]
    assert bench.public() == {}
    assert bench.private() == dict.fromkeys(("spark:stage:w.0.0", "spark:stage:w.0.99", "spark:stage:w.1.0"), True)
    assert 0 < bench.client.pttl(first.stage) <= DAY_MS
    assert sum(bench.queue.counts().values()) == 0
    register("w", [QueuePlan(handle, [first, second], {})], None)
    roll_forward(handle, "w")
    assert bench.numbers(bench.taken()) == list(range(9))
    assert bench.client.pttl(failed.stage) > 0


def test_a_registered_write_does_not_expire_and_the_record_of_a_finished_one_does(
    make: Make,
) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "w", [numbered(4), numbered(3, 4)], 3, Identity("app", 4))
    lasting = ("stage:w.0.0", "stage:w.1.0", "manifest:w", "write:w", "writes:open")
    assert bench.private() == {f"spark:{name}": False for name in lasting} | {"spark:watermark:app": True}
    assert bench.public() == {}
    seen: list[tuple[int, int, int]] = []
    record = roll_forward(handle, "w", lambda done, total: seen.append((done, total, len(bench.taken()))))
    assert seen == [(3, 7, 3), (4, 7, 4), (7, 7, 7)]
    assert bench.private() == dict.fromkeys(
        ("spark:write:w", "spark:ids:w", "spark:writes:finished", "spark:watermark:app"), True
    )
    assert 0 < bench.client.pttl(handle.keys.write("w")) <= RECORD_TTL_MS
    assert 0 < bench.client.pttl(handle.keys.watermark("app")) <= WATERMARK_TTL_MS
    assert (record.id, record.queue, record.state) == ("w", bench.queue.name, "finished")
    assert (record.jobs, record.added, record.duplicates, record.app_id, record.version) == (7, 7, 0, "app", 4)
    assert record.delivery == "exactly-once"
    assert record.duration_ms >= 0
    assert bench.queue.writes() == [record]


def test_records_are_read_in_portions_the_newest_first(make: Make) -> None:
    """A write that ends meanwhile neither hides another one nor shows it twice."""
    bench = make()
    handle = bench.queue.handle

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
def test_a_version_is_written_once_and_lower_versions_are_not(make: Make, version: int, written: bool) -> None:
    bench = make()
    handle = bench.queue.handle
    assert register_all(handle, "first", [numbered(4)], 3, Identity("app", 4))
    roll_forward(handle, "first")
    assert is_written(handle, Identity("app", version)) is not written
    again = register_all(handle, "again", [numbered(4, 100)], 3, Identity("app", version), replace=not written)
    assert again is written
    assert not is_written(handle, Identity("other", version))
    if written:
        roll_forward(handle, "again")
    assert bench.numbers(bench.taken()) == [0, 1, 2, 3] + ([100, 101, 102, 103] if written else [])
    assert not any("stage" in name for name in bench.private())
    assert bench.client.get(handle.keys.watermark("app")) == str(max(4, version)).encode()


def test_two_queues_are_registered_together_or_not_at_all(make: Make) -> None:
    one, other = make(name="one"), make(name="other")
    plans = [stage_all(bench.queue.handle, "w", [numbered(4)], 3) for bench in (one, other)]
    other.client.hdel(plans[1].parts[0].stage, 1)
    with pytest.raises(StagedDataLost, match="nothing was written") as lost:
        register("w", plans, Identity("app", 1))
    assert "stageTtlMs" in str(lost.value)
    with pytest.raises(StagedDataLost, match="expected write w"):
        roll_forward(other.queue.handle, "w")
    assert (open_writes(one.queue.handle), other.public()) == ([], {})
    assert not is_written(one.queue.handle, Identity("app", 1))
    # The rest still expires.
    assert one.private() == other.private() == {"spark:stage:w.0.0": True}

    plans[1] = stage_all(other.queue.handle, "w", [numbered(4)], 3)
    assert register("w", plans, Identity("app", 1))
    for bench in (one, other):
        roll_forward(bench.queue.handle, "w")
        assert bench.numbers(bench.taken()) == [0, 1, 2, 3]
        assert is_written(bench.queue.handle, Identity("app", 1))
    assert not register("v", [stage_all(other.queue.handle, "v", [numbered(1)])], Identity("app", 1))


# defaults


@bull_and_bullmq
def test_options_of_a_queue_are_the_defaults_of_its_jobs(make: Make) -> None:
    bench = make(
        attempts=3,
        backoff={"type": "exponential", "delay": 50},
        remove_on_complete=True,
        opts={"keepLogs": 7},
        delay=HOUR,
    )
    plain = bench.queue.add({})
    (other,) = bench.queue.add_many([NewJob({}, attempts=5, delay=0, opts={"keepLogs": 8})]).ids
    shared = {"backoff": {"type": "exponential", "delay": 50}, "removeOnComplete": True}
    shortened = "kl" if bench.queue.protocol == "bullmq" else "keepLogs"
    for job_id, own in [(plain, {"attempts": 3, shortened: 7}), (other, {"attempts": 5, shortened: 8})]:
        assert (shared | own).items() <= json.loads(bench.fields(job_id)["opts"]).items()
    assert bench.queue.counts()["delayed"] == bench.queue.counts()["wait"] == 1


def test_an_invalid_default_is_refused_by_the_constructor(redis_url: str, prefix: str, dialect: str) -> None:
    for bad, said in [({"backoff": {"delay": 3}}, "`backoff`"), ({"opts": {"repeat": {}}}, "`repeat`")]:
        with pytest.raises(SparkBullError, match=said):
            BullQueue("q", url=redis_url, prefix=prefix, protocol=dialect, **bad)
    with pytest.raises(OptionError, match="expected `opts` to be a value that JSON can hold"):
        BullQueue("q", url=redis_url, opts={"keepLogs": {1}})


# a write that replaces the queue


@each_dialect
def test_a_replacing_write_removes_the_old_jobs_in_portions(make: Make, calls: Calls) -> None:
    bench = make(chunk_size=500)
    handle = bench.queue.handle
    bench.queue.add_many([NewJob({}, delay=HOUR if n % 2 else None) for n in range(1_200)])
    bench.queue.pause()
    assert register_all(handle, "w", [numbered(4), numbered(3, 4)], 3, replace=True)
    # The old jobs stay until the commit.
    assert sum(bench.queue.counts().values()) == 1_200
    record = roll_forward(handle, "w")
    assert calls.count("empty") >= 3
    assert (record.state, record.added) == ("finished", 7)
    assert not bench.queue.is_paused()
    assert bench.numbers(bench.taken()) == list(range(7))
    assert sum(bench.queue.counts().values()) == 7
    assert all(bench.private().values())
    register_all(handle, "nothing", [], replace=True)
    assert roll_forward(handle, "nothing").state == "finished"
    assert bench.public() == {}


class Cut(Exception):
    pass


def test_a_replacing_write_can_be_cut_off_after_any_script(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each recovery is cut off after one script; in the end only the new jobs exist."""
    bench = make()
    handle = bench.queue.handle
    # So many that several scripts remove them.
    bench.queue.add_many([NewJob({}) for _ in range(700)])
    register_all(handle, "w", [numbered(4), numbered(3, 4)], 3, replace=True)
    send, cuts = Connection.script, 0
    seen: list[int] = []

    def send_and_die(self: Connection, name: str, *rest: Any) -> Any:
        nonlocal cuts
        reply = send(self, name, *rest)
        changed = name.endswith("/empty") or (name.endswith("/commit") and seen != [int(reply[1])])
        if name.endswith("/commit"):
            seen[:] = [int(reply[1])]
        if changed:
            cuts += 1
            raise Cut
        return reply

    monkeypatch.setattr(Connection, "script", send_and_die)
    while open_writes(handle):
        with suppress(Cut):
            recover(handle)
    monkeypatch.setattr(Connection, "script", send)
    assert cuts >= 5
    assert bench.numbers(bench.taken()) == list(range(7))
    assert sum(bench.queue.counts().values()) == 7


def test_a_replacing_write_whose_staged_jobs_are_lost_keeps_the_old_ones(make: Make) -> None:
    bench = make()
    bench.add(*numbered(5))
    lost = stage_all(bench.queue.handle, "lost", [numbered(7, 10)], 3, replace=True)
    bench.client.unlink(lost.parts[0].stage)
    with pytest.raises(StagedDataLost, match="nothing was written"):
        register("lost", [lost], None)
    recover(bench.queue.handle)
    assert bench.numbers(bench.taken()) == [0, 1, 2, 3, 4]


def test_a_replacing_write_removes_earlier_writes_and_keeps_later_ones(make: Make) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "z-before", [numbered(4)], 3)
    register_all(handle, "broken", [numbered(7)], 3)
    bench.client.hdel(handle.keys.stage("broken.0.0"), 1)
    register_all(handle, "m-replacing", [numbered(4, 10)], 3, replace=True)
    register_all(handle, "a-behind", [numbered(4, 20)], 3)
    roll_forward(handle, "a-behind")
    assert bench.numbers(bench.taken()) == [10, 11, 12, 13, 20, 21, 22, 23]
    states = {record.id: record.state for record in bench.queue.writes()}
    assert states == dict.fromkeys(("z-before", "m-replacing", "a-behind"), "finished") | {"broken": "broken"}
    assert open_writes(handle) == []


# what goes wrong


def test_chunks_that_are_lost_after_registration_break_the_write_and_the_rest_expires(
    make: Make,
) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "w", [numbered(7), numbered(7, 7)], 3)
    bench.client.hdel(handle.keys.stage("w.0.0"), 1)
    with pytest.raises(StagedDataLost, match="after 3 of 14 rows were committed"):
        roll_forward(handle, "w")
    assert bench.numbers(bench.taken()) == [0, 1, 2]
    assert [(record.state, record.added) for record in bench.queue.writes()] == [("broken", 3)]
    assert open_writes(handle) == []
    assert all(bench.private().values()), bench.private()
    stages = [handle.keys.stage(f"w.{n}.0") for n in range(2)]
    assert discard(handle.connection, handle.keys, "w", stages) == 0
    assert bench.client.exists(*stages) == 2


def test_a_late_task_attempt_cannot_change_a_registered_write(make: Make) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "w", [numbered(4)], 3)
    with pytest.raises(SparkBullError, match="this attempt of the task is too late"):
        stage_chunks(handle.connection, [StagedChunk(handle.keys.stage("w.0.0"), 7, b"\x80")], 1000)
    roll_forward(handle, "w")
    assert bench.numbers(bench.taken()) == [0, 1, 2, 3]
    stage(handle, "w.0.0", numbered(4), 3)
    assert bench.private()["spark:stage:w.0.0"], "it expires"
    assert recover(handle) == []


def test_a_micro_batch_without_rows_is_noted_unless_a_later_one_was(make: Make) -> None:
    bench = make()
    handle, key = bench.queue.handle, bench.queue.handle.keys.watermark("query")
    for version, noted in ((0, 0), (3, 3), (1, 3)):
        pass_batch(handle, Identity("query", version))
        assert int(bench.client.get(key) or -1) == noted
    assert bench.client.pttl(key) > 399 * DAY_MS
    assert not register_all(handle, "repeated", [numbered(4)], 3, Identity("query", 3))
    assert register_all(handle, "next", [numbered(4)], 3, Identity("query", 4))


def test_discard_deletes_failed_attempts_and_not_registered_ones(make: Make) -> None:
    bench = make()
    handle = bench.queue.handle
    failed = stage_all(handle, "failed", [numbered(4), numbered(4)], 3)
    register_all(handle, "w", [numbered(4)], 3)
    stages = [part.stage for part in failed.parts]
    discard(handle.connection, handle.keys, "failed", [*stages, handle.keys.stage("unknown")])
    assert not bench.client.exists(*stages)
    assert discard(handle.connection, handle.keys, "w", [handle.keys.stage("w.0.0")]) == 0
    roll_forward(handle, "w")
    assert bench.numbers(bench.taken()) == [0, 1, 2, 3]
    assert discard(handle.connection, handle.keys, "none", []) == 0


# parents


@pytest.mark.parametrize("way", ["straight", "staged"], indirect=True)
def test_jobs_whose_parent_is_missing_take_no_id_and_are_not_added(bench: Bench) -> None:
    lost = {"queue": bench.queue.name, "id": "none"}
    jobs = [job(0), job(1, parent=lost), job(2), job(3, job_id="x", parent=lost), job(4)]
    if bench.way == "staged":
        assert bench.add(*jobs) == (3, 0)
        (record,) = bench.queue.writes()
        assert (record.added, record.rejected, record.done) == (3, 2, 5)
    else:
        with pytest.raises(ParentError, match=r"^row 1: expected the parent of the job to exist"):
            bench.queue.add_many(jobs)
    assert bench.taken() == ["1", "2", "3"]
    assert bench.client.get(bench.key("id")) == b"3"
    assert not bench.client.exists(bench.key("x"), bench.key("none:dependencies"))


def test_a_job_keeps_its_living_parent_and_never_becomes_its_own_ancestor(make: Make) -> None:
    bench = make()
    queue = bench.queue
    queue.add({}, job_id="a")
    queue.add({}, job_id="b")
    queue.add({}, job_id="child", parent={"queue": queue.name, "id": "a"})
    before = bench.public() | {"id": "any"}
    with pytest.raises(ParentError, match="expected a job without another parent"):
        queue.add({}, job_id="child", parent={"queue": queue.name, "id": "b"})
    for ancestor, parent in (("a", "child"), ("b", "b")):
        with pytest.raises(ParentError, match="expected a parent that does not depend on the job itself"):
            queue.add({}, job_id=ancestor, parent={"queue": queue.name, "id": parent})
    assert bench.public() | {"id": "any"} == before


def test_a_parent_in_a_queue_of_another_dialect_is_refused(make: Make) -> None:
    bench = make()
    other = f"{bench.queue.handle.keys.prefix}-2:x"
    bench.client.sadd(f"{other}:completed", "1")
    with pytest.raises(DialectError, match="expected queue x to speak bullmq"):
        bench.queue.add({}, parent={"queue": other, "id": "1"})
