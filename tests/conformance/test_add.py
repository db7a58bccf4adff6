"""Adding jobs, directly and staged, in every dialect.

Every script is sent again after its reply, as if the reply had been lost. The second reply must equal the first one,
and the second call must have no effect.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from spark_bull.embedded.redis import EmbeddedRedis
from spark_bull.errors import DialectError, OptionError, ParentError, SparkBullError, StagedDataLost
from spark_bull.model.jobs import NewJob
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.dispatch.lost_writes import pass_batch
from spark_bull.queue.dispatch.registration import register
from spark_bull.queue.dispatch.verbs import RECORD_TTL_MS
from spark_bull.queue.dispatch.writes import (
    WATERMARK_TTL_MS,
    Identity,
    StagedChunk,
    discard,
    is_written,
    open_writes,
    recover,
    roll_forward,
    stage_chunks,
)
from spark_bull.queue.process.claim import work
from spark_bull.store.connection import Connection
from tests.support.dump import PRIVATE, dump
from tests.support.jobs import HOUR
from tests.support.writes import DAY_MS, register_all, stage, stage_all

DIALECTS = ["bull-1", "bull", "bullmq"]
LONG_AGO = 1_600_000_000_000
LONG = 5 * 10**11
CLAIM = ClaimSettings("slot", lock_ms=HOUR)

only_bullmq = pytest.mark.parametrize("dialect", ["bullmq"], indirect=True)
only_bull = pytest.mark.parametrize("dialect", ["bull"], indirect=True)


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


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return request.param  # type: ignore[no-any-return]


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


@pytest.fixture
def make(client: Redis, redis_url: str, prefix: str, dialect: str, calls: Calls) -> Iterator[Callable[..., Bench]]:
    opened: list[BullQueue] = []

    def open_bench(way: str = "straight", name: str = "q", **options: Any) -> Bench:
        options = {"protocol": dialect, "chunk_size": 3, **options}
        # Bull 1 publishes outside the prefix, so the name of the queue must be unique.
        opened.append(BullQueue(f"{name}-{prefix}", url=redis_url, prefix=prefix, **options))
        return Bench(client, opened[-1], way, options["chunk_size"])

    yield open_bench
    for queue in opened:
        queue.close()


@pytest.fixture(params=["straight", "staged"])
def way(request: pytest.FixtureRequest) -> str:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def bench(make: Callable[..., Bench], way: str) -> Bench:
    """A queue to which three jobs are added per call, directly or staged."""
    return make(way)


def job(number: int, **properties: Any) -> NewJob:
    return NewJob({"n": number}, **properties)


def numbered(count: int, first: int = 0, **properties: Any) -> list[NewJob]:
    return [job(n, **properties) for n in range(first, first + count)]


# order


def test_jobs_are_taken_in_the_order_in_which_they_were_added(bench: Bench) -> None:
    assert bench.add(*numbered(10, 1)) == (10, 0)
    assert bench.add(*numbered(4, 11)) == (4, 0)
    ids = bench.taken()
    assert ids == [str(n) for n in range(1, 15)]
    assert bench.numbers(ids) == list(range(1, 15))
    assert bench.client.get(bench.key("id")) == b"14"


def test_ids_are_returned_in_the_order_of_the_jobs(make: Callable[..., Bench]) -> None:
    queue = make().queue
    jobs = [job(n, job_id=f"own-{n}" if n % 3 == 0 else None) for n in range(8)]
    added = queue.add_many(jobs)
    # Taken in the order of the counter, which counts every job.
    assert added.ids == ["own-0", "2", "3", "own-3", "5", "6", "own-6", "8"]
    assert (added.added, added.duplicates) == (8, 0)
    assert queue.add({}, delay=HOUR) == "9"


@only_bullmq
@pytest.mark.parametrize("newest", [-115, -26, -12, 0, 7, 98, 99, 9_999_999_995, 123_456_789_012_345])
def test_jobs_with_payloads_names_and_options_only_are_stored_as_those_beside_other_jobs(
    make: Callable[..., Bench], newest: int, way: str
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


def test_any_mix_of_lifo_jobs_has_the_order_of_single_pushes(make: Callable[..., Bench]) -> None:
    opened = iter(range(1000))

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(1, 5), st.sampled_from(["straight", "staged"]))
    def holds(lifos: list[bool], chunk_size: int, way: str) -> None:
        bench = make(way, name=f"q{next(opened)}", chunk_size=chunk_size)
        bench.add(*[job(n, lifo=lifo) for n, lifo in enumerate(lifos)])
        wanted: deque[int] = deque()
        for n, lifo in enumerate(lifos):
            (wanted.appendleft if lifo else wanted.append)(n)
        assert bench.numbers(bench.taken()) == list(wanted)

    holds()


@only_bull
def test_bull_orders_any_mix_of_priorities_and_lifo_jobs_in_wait(make: Callable[..., Bench]) -> None:
    opened = iter(range(1000))
    kinds = st.tuples(st.integers(0, 3), st.booleans())

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(kinds, min_size=1, max_size=12), st.integers(1, 5), st.sampled_from(["straight", "staged"]))
    def holds(jobs: list[tuple[int, bool]], chunk_size: int, way: str) -> None:
        bench = make(way, name=f"q{next(opened)}", chunk_size=chunk_size)
        bench.add(*[job(n, priority=priority, lifo=lifo) for n, (priority, lifo) in enumerate(jobs)])
        # Bull's rule: skip as many jobs as there are prioritised jobs that go first, whatever jobs these are.
        taken: list[int] = []
        counted: list[int] = []
        for n, (priority, lifo) in enumerate(jobs):
            if priority:
                taken.insert(min(sum(other <= priority for other in counted), len(taken)), n)
                counted.append(priority)
            else:
                taken.insert(0 if lifo else len(taken), n)
        assert bench.numbers(bench.taken()) == taken

    holds()


@only_bull
def test_a_chunk_of_priorities_is_added_to_a_long_list_in_parts(
    make: Callable[..., Bench], way: str, calls: Calls
) -> None:
    bench = make(way, chunk_size=500)
    bench.client.lpush(bench.key("wait"), *(f"x{n}" for n in range(60_000)))
    priorities = [3, 1, 2] * 4
    assert bench.add(*[job(n, priority=priority) for n, priority in enumerate(priorities)]) == (12, 0)
    ids = [job_id.decode() for job_id in bench.client.lrange(bench.key("wait"), -12, -1)][::-1]
    in_order = sorted(range(12), key=lambda n: priorities[n])
    assert bench.numbers(ids) == in_order
    assert bench.client.llen(bench.key("wait")) == 60_012
    # One call inserts at most four of these jobs.
    assert calls.count("add") + calls.count("commit") >= 3


@only_bullmq
def test_bullmq_keeps_priorities_apart(bench: Bench) -> None:
    priorities = [3, 1, 2_097_151, 1, 0, 2, 1, 3]
    bench.add(*[job(n, priority=priority) for n, priority in enumerate(priorities)])
    assert bench.numbers(bench.taken()) == [4]
    in_order = sorted((n for n, priority in enumerate(priorities) if priority), key=lambda n: priorities[n])
    assert bench.numbers(bench.due("prioritized")) == in_order
    assert [int(score) >> 32 for _, score in bench.scores("prioritized")] == [priorities[n] for n in in_order]
    assert bench.client.get(bench.key("pc")) == b"7"


# duplicates


def test_an_existing_id_is_not_added_again_and_is_counted(bench: Bench) -> None:
    jobs = [job(n, job_id=job_id) for n, job_id in enumerate("abacadbae")]
    assert bench.add(*jobs) == (5, 4)
    assert bench.taken() == list("abcde")
    assert bench.numbers("abcde") == [0, 1, 3, 5, 8]
    before = {name: value for name, value in bench.public().items() if name not in ("id", "events")}
    assert bench.add(*[job(99, job_id=job_id) for job_id in "edcba"]) == (0, 5)
    assert {name: value for name, value in bench.public().items() if name not in ("id", "events")} == before


each_deduplicating = pytest.mark.parametrize("dialect", ["bull", "bullmq"], indirect=True)


@each_deduplicating
def test_a_job_whose_deduplication_id_is_taken_is_not_added_and_is_counted(make: Callable[..., Bench]) -> None:
    bench = make()
    once = [job(n, deduplication="x" if n % 2 else None) for n in range(6)]
    added = bench.queue.add_many(once)
    assert (added.added, added.duplicates, added.deduplicated) == (4, 0, 2)
    assert added.ids == ["1", "2", "3", "2", "5", "2"]
    assert bench.numbers(bench.taken()) == [0, 1, 2, 4]
    assert bench.queue.deduplication_job_id("x") == "2"
    assert bench.queue.add({}, deduplication={"id": "x"}) == "2"
    assert bench.queue.add({}, deduplication="y") == "8"
    found = bench.queue.job("2")
    assert found is not None
    assert found.deduplication_id == "x"


@each_deduplicating
def test_a_write_counts_deduplicated_jobs_in_its_record(make: Callable[..., Bench]) -> None:
    bench = make()
    register_all(bench.queue.handle, "w", [[job(n, deduplication=str(n % 4)) for n in range(10)]], 3)
    record = roll_forward(bench.queue.handle, "w")
    assert (record.jobs, record.added, record.duplicates, record.deduplicated) == (10, 4, 0, 6)
    assert bench.numbers(bench.taken()) == [0, 1, 2, 3]


@each_deduplicating
def test_an_existing_job_id_takes_precedence_over_a_deduplication_id(make: Callable[..., Bench]) -> None:
    bench = make()
    jobs = [job(n, job_id="own", deduplication="x") for n in range(2)]
    added = bench.queue.add_many([*jobs, job(2, deduplication="x")])
    assert (added.ids, added.added, added.duplicates, added.deduplicated) == (["own", "own", "own"], 1, 1, 1)


@each_deduplicating
def test_a_deduplication_id_with_a_ttl_expires(bench: Bench) -> None:
    bench.add(job(0, deduplication={"id": "x", "ttl": HOUR}), job(1, deduplication="y"))
    assert 0 < bench.client.pttl(bench.key("de:x")) <= HOUR
    assert bench.client.pttl(bench.key("de:y")) == -1


@each_deduplicating
def test_a_deduplication_id_can_be_freed(make: Callable[..., Bench]) -> None:
    bench = make()
    queue = bench.queue
    queue.add({}, deduplication="x")
    assert queue.remove_deduplication_key("x", job_id="7") is False
    assert queue.deduplication_job_id("x") == "1"
    assert queue.remove_deduplication_key("x", job_id="1") is True
    assert queue.deduplication_job_id("x") is None
    assert queue.remove_deduplication_key("x") is False
    assert queue.add({}, deduplication="x") == "2"
    assert queue.remove_deduplication_key("x") is True


@pytest.mark.parametrize("dialect", ["bull-1"], indirect=True)
def test_bull_1_has_no_deduplication_ids(make: Callable[..., Bench]) -> None:
    queue = make().queue
    for refused in (
        lambda: queue.add({}, deduplication="x"),
        lambda: queue.deduplication_job_id("x"),
        lambda: queue.remove_deduplication_key("x"),
        lambda: make(deduplication={"ttl": 5}),
    ):
        with pytest.raises(DialectError, match="bull-1 has no deduplication ids"):
            refused()


def test_a_chunk_reads_the_active_jobs_once() -> None:
    jobs = [job(n, deduplication={"id": str(n), "keepLastIfActive": True}) for n in range(20)]
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client, BullQueue("q", url=server.url) as queue:
        queue.add_many(jobs)
        assert len(work(queue.handle, CLAIM, None, 20).jobs) == 20
        client.config_resetstat()
        assert queue.add_many(jobs).deduplicated == 20
        sent = client.info("commandstats")
        assert sent["cmdstat_lrange"]["calls"] == 1
        assert "cmdstat_lpos" not in sent


def test_an_id_can_be_used_again_after_its_job_is_removed(bench: Bench) -> None:
    bench.add(job(1, job_id="a"))
    bench.queue.remove("a")
    assert bench.add(job(2, job_id="a")) == (1, 0)
    assert bench.numbers(bench.taken()) == [2]


# time


def test_delayed_jobs_of_one_millisecond_stay_in_order(bench: Bench) -> None:
    due = LONG_AGO + LONG
    bench.add(*numbered(8, run_at=due, timestamp=LONG_AGO), *numbered(3, 8, run_at=due - 1, timestamp=LONG_AGO))
    assert bench.numbers(bench.due()) == [8, 9, 10, 0, 1, 2, 3, 4, 5, 6, 7]
    assert [int(score) // 4096 - due for _, score in bench.scores("delayed")] == [-1] * 3 + [0] * 8
    assert bench.taken() == []


@only_bullmq
def test_bullmq_orders_4096_delayed_jobs_per_millisecond(bench: Bench) -> None:
    due = LONG_AGO + LONG
    bench.client.zadd(bench.key("delayed"), {"before": due * 4096 + 4094})
    bench.add(*numbered(3, run_at=due, timestamp=LONG_AGO))
    assert [score - due * 4096 for _, score in bench.scores("delayed")] == [4094, 4095, 4095, 4095]


def test_a_delay_counts_from_the_timestamp(bench: Bench) -> None:
    bench.add(job(1, timestamp=LONG_AGO, delay=LONG), job(2, timestamp=LONG_AGO, delay=0))
    assert [int(score) // 4096 for _, score in bench.scores("delayed")] == [LONG_AGO + LONG]
    assert bench.numbers(bench.taken()) == [2]
    for job_id in (*bench.due(), *bench.taken()):
        assert bench.fields(job_id)["timestamp"] == str(LONG_AGO)


def test_without_a_timestamp_the_clock_is_that_of_redis(bench: Bench) -> None:
    before = bench.queue.handle.connection.now_ms()
    bench.add(job(1), job(2, delay=HOUR))
    after = bench.queue.handle.connection.now_ms()
    (waiting,), ((delayed, score),) = bench.taken(), bench.scores("delayed")
    for job_id in (waiting, delayed):
        assert before <= int(bench.fields(job_id)["timestamp"]) <= after
    assert int(score) // 4096 == int(bench.fields(delayed)["timestamp"]) + HOUR


def test_a_run_at_in_the_past_is_not_delayed(bench: Bench) -> None:
    bench.add(job(1, run_at=LONG_AGO), job(2, run_at=LONG_AGO, timestamp=LONG_AGO + 5))
    assert bench.numbers(bench.taken()) == [1, 2]
    assert bench.due() == []


def test_an_expired_delay_is_handled_as_by_the_library(bench: Bench, dialect: str) -> None:
    bench.add(job(1, timestamp=LONG_AGO, delay=HOUR))
    # Bull 1 compares with the clock; the others leave such jobs to the promoter.
    assert len(bench.taken() if dialect == "bull-1" else bench.due()) == 1


# waking workers


def test_jobs_of_a_paused_queue_are_stored_as_by_the_library(bench: Bench, dialect: str) -> None:
    if dialect == "bullmq":
        bench.client.hset(bench.key("meta"), "paused", 1)
    else:
        bench.client.set(bench.key("meta-paused"), 1)
    bench.add(*numbered(4), job(4, lifo=True))
    assert bench.numbers(bench.taken("paused")) == [4, 0, 1, 2, 3]
    assert bench.taken("wait") == []


@only_bullmq
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
@pytest.mark.parametrize("way", ["straight", "staged"])
def test_bullmq_5_and_6_store_jobs_of_a_paused_queue_differently(
    make: Callable[..., Bench], way: str, written: str, forced: str, store: str
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


@only_bullmq
@pytest.mark.parametrize(
    ("jobs", "markers"),
    [
        ([job(1)], ["0"]),
        ([job(1, lifo=True)], ["0"]),
        ([job(1, priority=1)], ["0"]),
        ([job(1, delay=HOUR)], ["1"]),
        ([job(1), job(2, delay=HOUR)], ["0", "1"]),
    ],
)
def test_a_marker_wakes_bullmq_workers(bench: Bench, jobs: list[NewJob], markers: list[str]) -> None:
    bench.add(*jobs)
    assert [member for member, _ in bench.scores("marker")] == markers


@only_bullmq
def test_the_marker_has_the_time_of_the_next_delayed_job(bench: Bench) -> None:
    due = LONG_AGO + LONG
    bench.add(job(1, run_at=due + 5), job(2, run_at=due), job(3, run_at=due + 9))
    assert bench.scores("marker") == [("1", due)]
    bench.add(job(4, run_at=due + 20))
    assert bench.scores("marker") == [("1", due)]


@only_bullmq
@pytest.mark.parametrize(("active", "woken"), [(0, True), (1, True), (2, False), (3, False)])
def test_a_marker_respects_global_concurrency(bench: Bench, active: int, woken: bool) -> None:
    bench.client.hset(bench.key("meta"), "concurrency", 2)
    for number in range(active):
        bench.client.lpush(bench.key("active"), f"busy-{number}")
    bench.add(job(1))
    assert bool(bench.scores("marker")) is woken
    assert bench.numbers(bench.taken()) == [1]


@only_bullmq
def test_the_event_stream_is_trimmed_to_its_length(make: Callable[..., Bench], way: str) -> None:
    bench = make(way, chunk_size=500)
    bench.client.hset(bench.key("meta"), "opts.maxLenEvents", 100)
    bench.add(*numbered(1500))
    # Redis trims by whole nodes, of 100 entries each.
    assert 100 <= bench.client.xlen(bench.key("events")) <= 300


# chunks


def test_a_call_sends_at_most_one_chunk_of_jobs(make: Callable[..., Bench], calls: Calls) -> None:
    make(chunk_size=4).queue.add_many(numbered(10))
    assert calls.count("add") == 3


def test_a_call_sends_at_most_the_bytes_of_a_chunk_and_a_large_job_alone(
    make: Callable[..., Bench], calls: Calls
) -> None:
    bench = make(chunk_size=500, chunk_bytes=1024)
    sizes = [400, 400, 400, 3000, 10, 10]
    bench.queue.add_many([NewJob("x" * size) for size in sizes])
    assert [len(bench.fields(job_id)["data"]) - 2 for job_id in bench.taken()] == sizes
    assert calls.count("add") == 4
    assert [size > 1200 for _, size in calls.sent] == [False, False, True, False]


def test_adding_no_jobs_sends_no_script(make: Callable[..., Bench], calls: Calls) -> None:
    bench = make()
    assert bench.queue.add_many([]).ids == []
    assert calls.sent == []
    assert bench.public() == {}


def test_an_invalid_name_uses_no_id(make: Callable[..., Bench]) -> None:
    bench = make()
    with pytest.raises(
        OptionError, match=r"row 0: expected `name` to be a text, got: \{'a': 1\}; the payload is the first"
    ):
        bench.queue.add_many([NewJob("mail", {"a": 1})])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="row 0: expected `name` to be a text, got: 7"):
        bench.queue.add({}, name=7)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="row 1: expected `name` to be a text, got: 7"):
        bench.queue.add_many([NewJob({}, "mail"), NewJob({}, 7)])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="row 0: expected `job_id` to be a text, got: True"):
        bench.queue.add({}, job_id=True)
    assert bench.public() == {}


@pytest.mark.parametrize(
    ("given", "meant"),
    [("jobId", "job_id"), ("runAt", "run_at"), ("removeOnComplete", "remove_on_complete"), ("Delay", "delay")],
)
def test_a_property_in_node_s_spelling_is_refused_with_ours(make: Callable[..., Bench], given: str, meant: str) -> None:
    bench = make()
    with pytest.raises(OptionError, match=rf"unknown property `{given}` of a job \(did you mean `{meant}`\?\)"):
        bench.queue.add({}, **{given: 5})
    assert bench.public() == {}


def test_a_bad_job_stops_its_batch_before_anything_is_sent(make: Callable[..., Bench]) -> None:
    bench = make()
    with pytest.raises(OptionError, match="row 5: expected `delay`"):
        bench.queue.add_many([*numbered(5), job(5, delay=-1), *numbered(5)])
    assert bench.public() == {}


# names


@pytest.mark.parametrize(("name", "dialects"), [("a:b", ["bull-1", "bull"]), ("ü {x} *", DIALECTS), ("", [])])
def test_queue_names_follow_the_rules_of_the_library(
    redis_url: str, prefix: str, dialect: str, name: str, dialects: list[str]
) -> None:
    def add() -> str:
        with BullQueue(name, url=redis_url, prefix=prefix, protocol=dialect) as queue:
            return queue.add({})

    if dialect in dialects:
        assert add() == "1"
        return
    with pytest.raises(OptionError, match="expected `queue`"):
        add()


@pytest.mark.parametrize(
    ("job_id", "dialects"),
    [
        ("a", DIALECTS),
        ("007", DIALECTS),
        ("1e5", DIALECTS),
        ("a:b:c", DIALECTS),
        ("ü 漢", DIALECTS),
        ("a:b", ["bull-1", "bull"]),
        ("0:1:2", ["bull-1", "bull"]),
        ("7", ["bull-1", "bull"]),
        ("-7", ["bull-1", "bull"]),
        ("", []),
    ],
)
def test_job_ids_follow_the_rules_of_the_library(bench: Bench, dialect: str, job_id: str, dialects: list[str]) -> None:
    if dialect in dialects:
        assert bench.add(job(1, job_id=job_id)) == (1, 0)
        assert bench.taken() == [job_id]
        return
    with pytest.raises(OptionError, match="row 0: expected `jobId`"):
        bench.add(job(1, job_id=job_id))
    assert bench.public() == {}


@pytest.mark.parametrize("job_id", ["wait", "id", "meta", "spark:x", "de:x", "x:lock", "x:logs", "stalled-check"])
@pytest.mark.parametrize("dialect", ["bull-1", "bull"], indirect=True)
def test_a_job_id_that_equals_a_key_of_the_queue_is_refused(bench: Bench, job_id: str) -> None:
    with pytest.raises(OptionError, match="not to be the name of another key of the queue"):
        bench.add(job(1, job_id=job_id))


@pytest.mark.parametrize("dialect", ["bull-1"], indirect=True)
def test_bull_1_refuses_a_priority(bench: Bench) -> None:
    with pytest.raises(DialectError, match="expected no `priority`"):
        bench.add(job(1), job(2, priority=1))
    assert bench.public() == {}


# which dialect


@dataclass(frozen=True)
class Sign:
    """Keys that show a dialect."""

    dialect: str
    make: Callable[[Redis, str], object]
    name: str


SIGNS = [
    Sign("bullmq", lambda c, base: c.hset(base + "meta", "version", "bullmq:5.1.0"), "version"),
    Sign("bullmq", lambda c, base: c.hset(base + "meta", "opts.maxLenEvents", 10), "length of events"),
    Sign("bullmq", lambda c, base: c.xadd(base + "events", {"event": "x"}), "events"),
    Sign("bullmq", lambda c, base: c.zadd(base + "marker", {"0": 0}), "marker"),
    Sign("bullmq", lambda c, base: c.incr(base + "pc"), "pc"),
    Sign("bullmq", lambda c, base: c.zadd(base + "prioritized", {"1": 0}), "prioritized"),
    Sign("bull-1", lambda c, base: c.sadd(base + "completed", "1"), "completed set"),
    Sign("bull-1", lambda c, base: c.sadd(base + "failed", "1"), "failed set"),
    Sign("bull", lambda c, base: c.zadd(base + "completed", {"1": 0}), "completed zset"),
    Sign("bull", lambda c, base: c.zadd(base + "failed", {"1": 0}), "failed zset"),
    Sign("bull", lambda c, base: c.zadd(base + "priority", {"1": 0}), "priority"),
    Sign("bull", lambda c, base: c.set(base + "stalled-check", 1), "stalled check"),
    Sign("bull", lambda c, base: c.incr(base + "id"), "counter alone"),
    Sign("bull", lambda c, base: c.set(base + "meta-paused", 1), "paused"),
    Sign("bullmq", lambda c, base: None, "nothing"),
]


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: f"{sign.name}-{sign.dialect}")
def test_auto_detects_the_dialect_by_the_keys(client: Redis, redis_url: str, prefix: str, sign: Sign) -> None:
    sign.make(client, f"{prefix}:q:")
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        assert queue.protocol == sign.dialect


@pytest.mark.parametrize("delay", [None, HOUR])
def test_auto_detects_the_dialect_of_our_own_queues(
    redis_url: str, prefix: str, dialect: str, delay: int | None
) -> None:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=dialect) as queue:
        queue.add({}, delay=delay)
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        assert queue.protocol == dialect


def test_auto_detects_the_dialect_of_an_open_write_without_jobs(
    make: Callable[..., Bench], redis_url: str, prefix: str, dialect: str
) -> None:
    bench = make()
    register_all(bench.queue.handle, "w", [numbered(4)], 3)
    with BullQueue(bench.queue.name, url=redis_url, prefix=prefix) as queue:
        assert queue.protocol == dialect


def test_a_write_is_finished_only_in_its_own_dialect(
    make: Callable[..., Bench], redis_url: str, prefix: str, dialect: str
) -> None:
    bench = make()
    register_all(bench.queue.handle, "w", [numbered(4)], 3)
    for other in set(DIALECTS) - {dialect}:
        with pytest.raises(DialectError, match=f"speaks {dialect}: a write of this dialect is unfinished"):
            BullQueue(bench.queue.name, url=redis_url, prefix=prefix, protocol=other)
    with BullQueue(bench.queue.name, url=redis_url, prefix=prefix) as queue:
        assert [record.state for record in queue.recover()] == ["finished"]
    assert ("name" in bench.fields("1")) is (dialect != "bull-1")
    assert ("events" in bench.public()) is (dialect == "bullmq")


# staging


def test_staged_jobs_are_not_visible_and_expire(make: Callable[..., Bench]) -> None:
    bench = make()
    plan = stage_all(bench.queue.handle, "w", [numbered(7), numbered(2, 7)], 3)
    assert [(part.chunks, part.rows) for part in plan.parts] == [(3, 7), (1, 2)]
    assert bench.public() == {}
    assert bench.private() == {"spark:stage:w.0.0": True, "spark:stage:w.1.0": True}
    assert 0 < bench.client.pttl(plan.parts[0].stage) <= DAY_MS
    assert sum(bench.queue.counts().values()) == 0


def test_partitions_are_added_in_order(make: Callable[..., Bench]) -> None:
    bench = make()
    handle = bench.queue.handle
    second = stage(handle, "w.1.0", numbered(4, 5), 3)
    first = stage(handle, "w.0.0", numbered(5), 3)
    plan = stage_all(handle, "none", [])
    register("w", [type(plan)(handle, [first, second], {})], None)
    roll_forward(handle, "w")
    assert bench.numbers(bench.taken()) == list(range(9))


def test_only_registered_attempts_are_added(make: Callable[..., Bench]) -> None:
    bench = make()
    handle = bench.queue.handle
    stage(handle, "w.0.99", numbered(4, 100), 3)
    register_all(handle, "w", [numbered(4)], 3)
    roll_forward(handle, "w")
    assert bench.numbers(bench.taken()) == [0, 1, 2, 3]
    assert bench.private()["spark:stage:w.0.99"]


def test_a_registered_write_does_not_expire_and_the_record_of_a_finished_one_does(
    make: Callable[..., Bench],
) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "w", [numbered(7)], 3, Identity("app", 4))
    assert bench.private() == {
        "spark:stage:w.0.0": False,
        "spark:manifest:w": False,
        "spark:write:w": False,
        "spark:writes:open": False,
        "spark:watermark:app": True,
    }
    assert bench.public() == {}
    record = roll_forward(handle, "w")
    assert bench.private() == {
        "spark:write:w": True,
        "spark:ids:w": True,
        "spark:writes:finished": True,
        "spark:watermark:app": True,
    }
    assert 0 < bench.client.pttl(handle.keys.write("w")) <= RECORD_TTL_MS
    assert 0 < bench.client.pttl(handle.keys.watermark("app")) <= WATERMARK_TTL_MS
    assert (record.id, record.queue, record.state, record.delivery) == (
        "w",
        bench.queue.name,
        "finished",
        "exactly-once",
    )
    assert (record.jobs, record.added, record.duplicates, record.app_id, record.version) == (7, 7, 0, "app", 4)
    assert record.duration_ms is not None
    assert record.duration_ms >= 0
    assert bench.queue.writes() == [record]


def test_a_write_reports_its_progress(make: Callable[..., Bench]) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "w", [numbered(4), numbered(3, 4)], 3)
    seen: list[tuple[int, int, int]] = []
    roll_forward(handle, "w", lambda done, total: seen.append((done, total, bench.client.llen(bench.key("wait")))))
    assert seen == [(3, 7, 3), (4, 7, 4), (7, 7, 7)]


def test_a_write_without_jobs_leaves_a_record(make: Callable[..., Bench]) -> None:
    bench = make()
    register_all(bench.queue.handle, "w", [])
    record = roll_forward(bench.queue.handle, "w")
    assert (record.state, record.jobs, record.added) == ("finished", 0, 0)
    assert bench.public() == {}


def test_records_are_listed_in_the_order_of_finishing_with_open_writes_last(make: Callable[..., Bench]) -> None:
    bench = make()
    handle = bench.queue.handle
    for write_id in ("z", "a", "m"):
        register_all(handle, write_id, [numbered(2)])
    assert [record.state for record in bench.queue.writes()] == ["open"] * 3
    roll_forward(handle, "m")
    first, *_ = bench.queue.writes()
    assert (first.id, first.state) == ("m", "finished")
    assert {record.id for record in recover(handle)} == {"z", "a"}
    assert open_writes(handle) == []
    assert recover(handle) == []
    assert len(bench.taken()) == 6


# identity


@pytest.mark.parametrize(("version", "written"), [(3, False), (4, False), (5, True)])
def test_a_version_is_written_once_and_lower_versions_are_not(
    make: Callable[..., Bench], version: int, written: bool
) -> None:
    bench = make()
    handle = bench.queue.handle
    assert register_all(handle, "first", [numbered(4)], 3, Identity("app", 4))
    roll_forward(handle, "first")
    assert is_written(handle, Identity("app", version)) is not written
    assert register_all(handle, "again", [numbered(4, 100)], 3, Identity("app", version)) is written
    if written:
        roll_forward(handle, "again")
    assert bench.numbers(bench.taken()) == [0, 1, 2, 3] + ([100, 101, 102, 103] if written else [])
    assert not any("stage" in name for name in bench.private())
    assert bench.client.get(handle.keys.watermark("app")) == str(max(4, version)).encode()


def test_versions_of_applications_are_independent(make: Callable[..., Bench]) -> None:
    bench = make()
    handle = bench.queue.handle
    for app in ("a", "b"):
        assert register_all(handle, app, [numbered(1)], 3, Identity(app, 1))
    assert len(recover(handle)) == 2


def test_two_queues_are_registered_together_or_not_at_all(make: Callable[..., Bench]) -> None:
    one, other = make(name="one"), make(name="other")
    plans = [stage_all(bench.queue.handle, "w", [numbered(4)], 3) for bench in (one, other)]
    other.client.delete(plans[1].parts[0].stage)
    with pytest.raises(StagedDataLost, match="nothing was written"):
        register("w", plans, Identity("app", 1))
    assert open_writes(one.queue.handle) == []
    assert not is_written(one.queue.handle, Identity("app", 1))
    # The rest still expires.
    assert one.private() == {"spark:stage:w.0.0": True}

    plans[1] = stage_all(other.queue.handle, "w", [numbered(4)], 3)
    assert register("w", plans, Identity("app", 1))
    for bench in (one, other):
        roll_forward(bench.queue.handle, "w")
        assert bench.numbers(bench.taken()) == [0, 1, 2, 3]
        assert is_written(bench.queue.handle, Identity("app", 1))
    assert not register("v", [stage_all(other.queue.handle, "v", [numbered(1)])], Identity("app", 1))


# defaults


def test_options_of_a_queue_are_the_defaults_of_its_jobs(make: Callable[..., Bench]) -> None:
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


def test_a_replacing_write_removes_the_old_jobs_in_portions(make: Callable[..., Bench], calls: Calls) -> None:
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


def test_a_replacing_write_of_no_jobs_leaves_an_empty_queue(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.add(*numbered(5))
    register_all(bench.queue.handle, "w", [], replace=True)
    assert roll_forward(bench.queue.handle, "w").state == "finished"
    assert bench.public() == {}


class Cut(Exception):
    pass


def test_a_replacing_write_can_be_cut_off_after_any_script(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_replacing_write_removes_earlier_writes_and_keeps_later_ones(
    make: Callable[..., Bench],
) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "z-before", [numbered(4)], 3)
    register_all(handle, "m-replacing", [numbered(4, 10)], 3, replace=True)
    register_all(handle, "a-behind", [numbered(4, 20)], 3)
    roll_forward(handle, "a-behind")
    assert bench.numbers(bench.taken()) == [10, 11, 12, 13, 20, 21, 22, 23]
    assert [record.state for record in bench.queue.writes()] == ["finished"] * 3
    assert open_writes(handle) == []


def test_a_broken_write_does_not_block_a_replacing_write(make: Callable[..., Bench]) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "broken", [numbered(7)], 3)
    bench.client.hdel(handle.keys.stage("broken.0.0"), 1)
    register_all(handle, "w", [numbered(4, 10)], 3, replace=True)
    assert roll_forward(handle, "w").state == "finished"
    assert bench.numbers(bench.taken()) == [10, 11, 12, 13]


def test_a_lost_or_repeated_replacing_write_keeps_the_old_jobs(make: Callable[..., Bench]) -> None:
    bench = make()
    handle = bench.queue.handle
    bench.add(*numbered(5))
    lost = stage_all(handle, "lost", [numbered(7, 10)], 3, replace=True)
    bench.client.unlink(lost.parts[0].stage)
    with pytest.raises(StagedDataLost, match="nothing was written"):
        register("lost", [lost], None)
    assert register_all(handle, "w", [numbered(1, 5)], 3, Identity("app", 2))
    roll_forward(handle, "w")
    assert not register_all(handle, "again", [numbered(1, 5)], 3, Identity("app", 2), replace=True)
    recover(handle)
    assert bench.numbers(bench.taken()) == [0, 1, 2, 3, 4, 5]


# what goes wrong


def test_missing_chunks_stop_a_write_before_it_is_registered(make: Callable[..., Bench]) -> None:
    bench = make()
    plan = stage_all(bench.queue.handle, "w", [numbered(7)], 3)
    bench.client.hdel(plan.parts[0].stage, 1)
    with pytest.raises(StagedDataLost, match="stageTtlMs"):
        register("w", [plan], None)
    assert bench.public() == {}
    assert all(bench.private().values())


def test_chunks_that_are_lost_after_registration_break_the_write_and_the_rest_expires(
    make: Callable[..., Bench],
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


def test_an_unknown_write_is_an_error(make: Callable[..., Bench]) -> None:
    with pytest.raises(StagedDataLost, match="expected write nothing"):
        roll_forward(make().queue.handle, "nothing")


def test_a_late_task_attempt_cannot_change_a_registered_write(make: Callable[..., Bench]) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "w", [numbered(4)], 3)
    with pytest.raises(SparkBullError, match="this attempt of the task is too late"):
        stage_chunks(handle.connection, [StagedChunk(handle.keys.stage("w.0.0"), 7, b"\x80")], 1000)
    roll_forward(handle, "w")
    assert bench.numbers(bench.taken()) == [0, 1, 2, 3]


def test_a_micro_batch_without_rows_is_noted_unless_a_later_one_was(make: Callable[..., Bench]) -> None:
    bench = make()
    handle, key = bench.queue.handle, bench.queue.handle.keys.watermark("query")
    for version, noted in ((0, 0), (3, 3), (1, 3)):
        pass_batch(handle, Identity("query", version))
        assert int(bench.client.get(key) or -1) == noted
    assert bench.client.pttl(key) > 399 * DAY_MS
    assert not register_all(handle, "repeated", [numbered(4)], 3, Identity("query", 3))
    assert register_all(handle, "next", [numbered(4)], 3, Identity("query", 4))


def test_a_late_task_attempt_after_a_finished_write_leaves_only_expiring_keys(make: Callable[..., Bench]) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "w", [numbered(4)], 3)
    roll_forward(handle, "w")
    stage(handle, "w.0.0", numbered(4), 3)
    assert bench.private()["spark:stage:w.0.0"]
    assert recover(handle) == []


def test_discard_deletes_failed_attempts_and_not_registered_ones(make: Callable[..., Bench]) -> None:
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


def test_discard_keeps_the_chunks_of_a_broken_write(make: Callable[..., Bench]) -> None:
    bench = make()
    handle = bench.queue.handle
    register_all(handle, "w", [numbered(7), numbered(7)], 3)
    bench.client.hdel(handle.keys.stage("w.0.0"), 1)
    with pytest.raises(StagedDataLost):
        roll_forward(handle, "w")
    stages = [handle.keys.stage(f"w.{n}.0") for n in range(2)]
    assert discard(handle.connection, handle.keys, "w", stages) == 0
    assert bench.client.exists(*stages) == 2


# parents


@only_bullmq
def test_children_are_added_to_their_parents(bench: Bench) -> None:
    parent = {"queue": bench.queue.name, "id": "p"}
    # A child is added with its parent, or after it, in any call.
    assert bench.add(job(0, job_id="p"), job(1, parent=parent | {"onFailure": "fail"}), *numbered(5, 2)) == (7, 0)
    assert bench.add(*[job(n, job_id=f"c{n}", parent=parent) for n in range(7)], job(8)) == (8, 0)
    prefix, queue = bench.queue.handle.keys.prefix, bench.queue.name
    children = bench.client.smembers(bench.key("p:dependencies"))
    assert children == {bench.key(child).encode() for child in ("2", *(f"c{n}" for n in range(7)))}
    first = bench.fields("2")
    assert first["parentKey"] == bench.key("p")
    assert json.loads(first["parent"]) == {"id": "p", "queueKey": f"{prefix}:{queue}", "fpof": True}
    assert json.loads(first["opts"]) == {
        "attempts": 0,
        "fpof": True,
        "parent": {"id": "p", "queue": f"{prefix}:{queue}"},
    }
    assert "parentKey" not in bench.fields("3")


@only_bullmq
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


@only_bullmq
def test_a_job_keeps_its_living_parent_and_never_becomes_its_own_ancestor(make: Callable[..., Bench]) -> None:
    bench = make()
    queue = bench.queue
    queue.add({}, job_id="a")
    queue.add({}, job_id="b")
    queue.add({}, job_id="child", parent={"queue": queue.name, "id": "a"})
    before = bench.public()
    with pytest.raises(ParentError, match="expected a job without another parent"):
        queue.add({}, job_id="child", parent={"queue": queue.name, "id": "b"})
    for ancestor, parent in (("a", "child"), ("b", "b")):
        with pytest.raises(ParentError, match="expected a parent that does not depend on the job itself"):
            queue.add({}, job_id=ancestor, parent={"queue": queue.name, "id": parent})
    after = bench.public()
    assert {name: value for name, value in after.items() if name != "id"} == {
        name: value for name, value in before.items() if name != "id"
    }


@only_bullmq
@pytest.mark.parametrize("queue", ["other", "bull-1:x"])
def test_a_parent_in_a_queue_of_another_dialect_is_refused(make: Callable[..., Bench], queue: str) -> None:
    bench = make()
    prefix, _, name = queue.rpartition(":")
    base = f"{prefix or bench.queue.handle.keys.prefix}:{name}:"
    bench.client.sadd(f"{base}completed", "1")
    try:
        with pytest.raises(DialectError, match=f"expected queue {name} to speak bullmq"):
            bench.queue.add({}, parent={"queue": queue, "id": "1"})
    finally:
        bench.client.delete(f"{base}completed")
