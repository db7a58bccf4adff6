"""Crashes while a write is registered in portions, as it is large or as its queues are in different slots of a cluster:
all of its jobs are added, each once, or none is visible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, IntakeClosed, NewJob, QueueFull, StagedDataLost, shard_names
from spark_bull.core.keys import QueueKeys
from spark_bull.core.queue.dispatch import registration, write_records
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.write_records import (
    Identity,
    QueuePlan,
    StagedChunk,
    StagedPart,
    discard,
    stage_chunks,
)
from spark_bull.core.store.connection import Connection
from tests.support.redis_servers import RedisCluster
from tests.support.traffic import Died, calls_of_scripts, script_work
from tests.support.wait import wait_until
from tests.support.without_spark import Sink
from tests.support.writes import DAY_MS, stage_all

ROWS = StructType().add("n", IntegerType()).add("queue", StringType())
TASKS, KEYS = 12, 10
SETTING_UP = ("write/prepare", "write/confirm", "write/decide", "write/open")


@dataclass(frozen=True)
class Place:
    """One server, or several primaries, where each queue of these tests is in another slot, or on another server."""

    url: str
    primaries: Sequence[Redis]
    #: The names of queues in Redis.
    name: str = "{}"

    def named(self, name: str) -> str:
        return self.name.format(name, ord(name) % 3)

    def queue(self, name: str, prefix: str) -> BullQueue:
        return BullQueue(self.named(name), url=self.url, prefix=prefix, protocol="bullmq")

    def keys(self, pattern: str) -> list[bytes]:
        return [key for one in self.primaries for key in one.scan_iter(pattern)]

    def lasting(self, pattern: str) -> list[bytes]:
        """The private keys that do not expire."""
        return [key for one in self.primaries for key in one.scan_iter(pattern) if one.ttl(key) == -1]

    def write(self, prefix: str, queues: Sequence[str], version: int = 1, **options: str) -> None:
        """Each task writes one row to each queue."""
        own = {"url": self.url, "prefix": prefix, "protocol": "bullmq", "jobColumns": "queue", **options}
        sink = Sink(own | {"txnAppId": "app", "txnVersion": str(version)}, ROWS)
        for n in range(TASKS):
            sink.task([{"n": n, "queue": self.named(name)} for name in queues])
        sink.commit()


def in_slots(cluster: RedisCluster) -> Place:
    return Place(cluster.url, [Redis.from_url(server.url) for server in cluster.primaries], "{{{}}}")


@pytest.fixture(scope="module")
def servers() -> Iterator[Sequence[str]]:
    with EmbeddedRedis() as a, EmbeddedRedis() as b, EmbeddedRedis() as c:
        yield [a.url, b.url, c.url]


@pytest.fixture(params=["one server", pytest.param("a cluster", marks=pytest.mark.rest), "three servers"])
def place(request: pytest.FixtureRequest) -> Place:
    """On several primaries, few keys need portions, too, as each queue is in another slot, or on another server."""
    if request.param == "one server":
        return Place(request.getfixturevalue("redis_url"), [request.getfixturevalue("client")])
    if request.param == "a cluster":
        return in_slots(request.getfixturevalue("cluster"))
    urls = request.getfixturevalue("servers")
    return Place(" ".join(urls), [Redis.from_url(url) for url in urls], "{}{{{}}}")


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions of few keys: the stage keys of one queue need several."""
    for module in (registration, write_records):
        monkeypatch.setattr(module, "KEYS_PER_CALL", KEYS)
    monkeypatch.setattr(write_records, "_QUEUES_PER_CALL", 2)


@contextmanager
def dying_at(number: int, when: str) -> Iterator[None]:
    """Lets every script fail from the one of the registration with this number on, before or after Redis runs it."""
    script, calls, reached = Connection.script, count(1), [0]

    def dying(self: Connection, *call: Any) -> Any:
        if call[0] in SETTING_UP:
            reached[0] = next(calls)
        elif reached[0] < number:
            return script(self, *call)
        this = reached[0]
        if this > number or (this == number and (when == "before" or call[0] not in SETTING_UP)):
            raise Died
        reply = script(self, *call)
        if this == number:
            raise Died
        return reply

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "script", dying)
        yield


def deaths(write: Callable[[int], object], when: str) -> Iterator[int]:
    """Lets a write die at its first call of the registration, one at its second, and so on; yields these numbers."""
    for number in count(1):
        try:
            with dying_at(number, when):
                write(number)
        except Died:
            yield number
        else:
            return


def numbers_in(queue: BullQueue) -> list[int]:
    return sorted(job.data["n"] for job in queue.page("wait", stop=1_000))


@pytest.mark.usefixtures("small_portions")
@pytest.mark.parametrize(("when", "queues"), [("before", ("a", "b")), ("after", ("a", "b")), ("after", ("a",))])
def test_a_write_whose_driver_dies_at_any_portion_is_whole_or_not_visible(
    place: Place, prefix: str, queues: tuple[str, ...], when: str
) -> None:
    for number in deaths(lambda number: place.write(f"{prefix}-{number}", queues), when):
        own = f"{prefix}-{number}"
        opened = [place.queue(name, own) for name in queues]
        if not any(queue.writes() for queue in opened):
            assert place.lasting(f"{own}:*:spark:*") == []
        for queue in opened:
            queue.recover()
        found = [numbers_in(queue) for queue in opened]
        assert found in ([[]] * len(queues), [[*range(TASKS)]] * len(queues)), number
        place.write(own, queues)
        assert [numbers_in(queue) for queue in opened] == [[*range(TASKS)]] * len(queues), number
        assert place.lasting(f"{own}:*:spark:*") == [], number
    assert number > len(queues) * TASKS / KEYS


@pytest.mark.usefixtures("small_portions")
@pytest.mark.parametrize("batch", [None, Identity("query", 0)], ids=["batch", "stream"])
def test_a_write_that_is_repeated_is_finished_in_all_shards(place: Place, prefix: str, batch: Identity | None) -> None:
    """Nobody else recovers the shards."""
    own = {"url": place.url, "prefix": prefix, "protocol": "bullmq", "shards": "2"}
    own |= {} if batch else {"txnAppId": "app", "txnVersion": "1"}

    def write(number: int) -> None:
        sink = Sink(own | {"queue": f"q{number}"}, ROWS, batch)
        for n in range(4):
            sink.task([{"n": n}, {"n": n}])
        sink.commit()

    for number in deaths(write, "after"):
        write(number)
        for name in shard_names(f"q{number}", 2):
            with BullQueue(name, url=place.url, prefix=prefix, protocol="bullmq") as queue:
                assert numbers_in(queue) == [*range(4)], number
    assert number > 2


@pytest.mark.usefixtures("small_portions")
def test_portions_that_are_sent_twice_change_nothing(place: Place, prefix: str) -> None:
    names = []

    def twice(name: str, call: Callable[[], Any]) -> Any:
        names.append(name)
        first = call()
        if name in SETTING_UP:
            again = call()
            assert again == first or name == "write/open"
        return first

    with calls_of_scripts(twice):
        place.write(prefix, ("a", "b"))
    assert {*SETTING_UP} < {*names}
    for name in "ab":
        with place.queue(name, prefix) as queue:
            assert numbers_in(queue) == [*range(TASKS)]
            assert [record.state for record in queue.writes()] == ["finished"]


@pytest.mark.usefixtures("small_portions")
@pytest.mark.parametrize("others", [("a", "b"), ("b", "c")], ids=["same queues", "other queues"])
def test_of_two_writes_of_one_version_one_is_added_to_each_queue(
    place: Place, prefix: str, others: tuple[str, ...]
) -> None:
    """The second one runs as a whole before a step of the first one."""
    for number, at in enumerate(SETTING_UP):
        own, begun = f"{prefix}-{number}", list[str]()

        def overtaken(name: str, call: Callable[[], Any], own: str = own, at: str = at, begun: list = begun) -> Any:
            if name == at and not begun:
                begun.append(name)
                place.write(own, others)
            return call()

        with calls_of_scripts(overtaken):
            place.write(own, ("a", "b"))
        for name in {"a", "b", *others}:
            with place.queue(name, own) as queue:
                queue.recover()
                assert numbers_in(queue) in ([*range(TASKS)], []), at
                assert (name == "b") <= (numbers_in(queue) != []), at


@pytest.mark.usefixtures("small_portions")
def test_a_write_that_was_given_up_is_removed(place: Place, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a process that sees only the queue that does not lead."""
    monkeypatch.setattr(registration, "VALID_MS", 1)
    with dying_at(4, "after"), pytest.raises(Died):
        place.write(prefix, ("a", "b"))
    prepared = f"{prefix}:{place.named('b')}:spark:"
    assert place.keys(f"{prepared}write:*")

    with place.queue("b", prefix) as queue:

        def is_removed() -> bool:
            assert queue.recover() == []
            return not place.keys(f"{prepared}write*") + place.keys(f"{prepared}manifest*")

        wait_until(is_removed, "the write to be removed")
        assert len(place.keys(f"{prepared}stage:*")) < TASKS


@pytest.mark.usefixtures("small_portions")
def test_a_late_chunk_does_not_shorten_the_life_of_a_prepared_stage(queue: BullQueue, client: Redis) -> None:
    """Whoever opens a registered write may do so long after `stageTtlMs`."""
    plan = stage_all(queue.handle, "w", [[NewJob({"n": n})] for n in range(TASKS)])
    stage = plan.parts[0].stage
    packed = client.hget(stage, "0")

    def late(name: str, call: Callable[[], Any]) -> Any:
        if name == "write/open":
            raise Died
        if name == "write/confirm":
            stage_chunks(queue.handle.connection, [StagedChunk(stage, 0, packed)], DAY_MS)
        return call()

    with calls_of_scripts(late), pytest.raises(Died):
        register("w", [plan], None)
    assert client.pttl(stage) > DAY_MS
    keys = queue.handle.keys
    lasting = (keys.write("w"), keys.manifest("w"), keys["open_writes"])
    assert [client.ttl(key) for key in lasting] == [-1, -1, -1], "what is registered expires"


@pytest.mark.usefixtures("small_portions")
def test_a_write_that_was_discarded_can_not_be_registered(queue: BullQueue, client: Redis, prefix: str) -> None:
    plan = stage_all(queue.handle, "w", [[NewJob({"n": n})] for n in range(TASKS)])

    def discarded(name: str, call: Callable[[], Any]) -> Any:
        if name == "write/confirm":
            discard(queue.handle.connection, queue.handle.keys, "w", [part.stage for part in plan.parts])
        return call()

    with calls_of_scripts(discarded), pytest.raises(StagedDataLost, match="nothing was written"):
        register("w", [plan], None)
    assert client.keys(f"{prefix}:*:spark:*") == []


def test_a_large_write_that_is_too_large_for_one_queue_adds_nothing_and_frees_the_room(
    place: Place, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (registration, write_records):
        monkeypatch.setattr(module, "KEYS_PER_CALL", 20)
    limit = {"maxLength": str(TASKS), "whenFull": "fail"}
    with place.queue("b", prefix) as queue:
        queue.add({"n": 0})
        with pytest.raises(
            QueueFull, match=rf"room for {TASKS} jobs in queue {re.escape(place.named('b'))}, which has 1 of"
        ):
            place.write(prefix, ("a", "b"), **limit)
        assert place.keys(f"{prefix}:*:spark:write*") + place.keys(f"{prefix}:*:spark:manifest*") == []
        queue.drain()
    place.write(prefix, ("a", "b"), **limit)
    with pytest.raises(QueueFull, match=rf"queue {re.escape(place.named('a'))}, which has {TASKS} of"):
        place.write(prefix, ("a", "b"), version=2, **limit)


def test_a_closed_queue_in_another_slot_refuses_the_whole_write(cluster: RedisCluster, prefix: str) -> None:
    place = in_slots(cluster)
    with place.queue("a", prefix) as a, place.queue("b", prefix) as b:
        a.add({"n": -1})
        b.close_intake()
        with pytest.raises(IntakeClosed, match=r"\{b\}"):
            place.write(prefix, ("a", "b"))
        assert numbers_in(a) == [-1]
        b.open_intake()
        place.write(prefix, ("a", "b"))
        assert numbers_in(a)[1:] == numbers_in(b) == [*range(TASKS)]


def test_no_script_of_a_large_registration_handles_more_than_a_portion(
    queue: BullQueue, client: Redis, prefix: str
) -> None:
    handle = queue.handle
    wide = [StagedPart(handle.keys.stage(f"wide.{n}.0"), 1, 1) for n in range(3_000)]
    many = [replace(handle, keys=QueueKeys(f"q{n:03}", prefix)) for n in range(300)]
    plans = [QueuePlan(one, [StagedPart(one.keys.stage("many.0.0"), 1, 1)], {}) for one in many]
    parts = [*wide, *(part for plan in plans for part in plan.parts)]
    stage_chunks(handle.connection, [StagedChunk(part.stage, 0, b"-") for part in parts], DAY_MS)
    for write_id, write_plans in (("wide", [QueuePlan(handle, wide, {})]), ("many", plans)):
        with script_work(client, prefix=prefix) as scripts:
            assert register(write_id, write_plans, Identity(write_id, 1))
        assert 3 < len(scripts) < 20
        assert max(script.commands for script in scripts) < 4 * write_records.KEYS_PER_CALL
    assert all(client.ttl(part.stage) == -1 for part in wide)
    assert all(client.ttl(part.stage) == -1 for part in parts)
