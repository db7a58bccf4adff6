"""Reads of many queues share round trips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from threading import current_thread
from threading import enumerate as running_threads
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import MovedError, ResponseError

from spark_bull import BullQueue, ConnectionLost, DialectError, EmbeddedRedis
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.parts import Options
from spark_bull.core.options.table import QueueOptions, ReadOptions
from spark_bull.core.store.client import RetryingClient
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import TOGETHER, RoundTrips, run, run_together
from spark_bull.core.store.scripts import Command
from spark_bull.ops.cli import show
from spark_bull.ops.prometheus.collect import Export, Scraped, collect
from spark_bull.ops.prometheus.families import ADDED_RATE, READABLE, UNREAD, Sample
from spark_bull.ops.web import queue_access
from spark_bull.ops.web.page import jobs
from spark_bull.spark.inspect.source import batch_reader
from spark_bull.spark.schemas import SCHEMAS
from tests.integration.conftest import Run
from tests.support.wait import wait_until
from tests.support.web import READING, Web, serving
from tests.support.work_bench import DIALECTS


@pytest.fixture(autouse=True)
def no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, a request reads all queues of its page."""
    monkeypatch.setattr(queue_access, "READING_S", inf)
    monkeypatch.setattr(jobs, "READING_S", inf)


@pytest.fixture
def options(place: dict[str, str]) -> Options:
    return parse_options(place, QueueOptions)


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Counts the round trips of a call, except by background threads, whose names begin with `spark-bull`.

    Of a thread that an earlier test has left, none count either.
    """
    send, sent, left = RetryingClient.run_at, [0], {one for one in running_threads() if one is not current_thread()}

    def counting(self: RetryingClient, *args: Any, **named: Any) -> Any:
        if not current_thread().name.startswith("spark-bull") and current_thread() not in left:
            sent[0] += 1
        return send(self, *args, **named)

    def count(call: Callable[[], object]) -> int:
        sent[0] = 0
        call()
        return sent[0]

    monkeypatch.setattr(RetryingClient, "run_at", counting)
    return count


@pytest.fixture
def names(place: dict[str, str]) -> Sequence[str]:
    """Queues of all dialects, of the same number each, in turns, with a job each."""
    names = [f"q{n:03}" for n in range(TOGETHER + TOGETHER // 2)]
    for n, name in enumerate(names):
        with BullQueue(name, **place, protocol=DIALECTS[n % len(DIALECTS)]) as queue:
            queue.add({})
    return names


def test_what_reads_many_queues_takes_few_round_trips(
    names: Sequence[str],
    options: Options,
    place: dict[str, str],
    run: Run,
    round_trips: Callable[[Callable[[], object]], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_access, "LEAST_S", 3_600.0)

    def of_server(path: str, count: int) -> int:
        with serving(**place, queues=tuple(names[:count])) as web:
            web.get("/queues")
            return round_trips(lambda: web.client.get(path, headers=READING).raise_for_status())

    def of_metrics(sample: int, count: int) -> int:
        return round_trips(lambda: collect(Export(options, tuple(names[:count]), sample, 60_000, 5)))

    def of_plan(count: int) -> int:
        return round_trips(batch_reader({**place, "queue": ",".join(names[:count])}, SCHEMAS["jobs"]).partitions)

    def of_command(count: int) -> int:
        monkeypatch.setattr(show, "find_queues", lambda *_: names[:count])
        return round_trips(lambda: run("queues"))

    readers: dict[str, Callable[[int], int]] = {
        **{path: partial(of_server, path) for path in ("/", "/api/queues", "/api/stats")},
        **{f"metrics of {sample}": partial(of_metrics, sample) for sample in (0, 10)},
        "the plan of a read": of_plan,
        "the command": of_command,
    }
    for what, trips in readers.items():
        few = trips(len(DIALECTS))
        assert trips(TOGETHER) == few, what
        assert trips(len(names)) <= 2 * few, what


@pytest.mark.parametrize(("path", "other"), [("/queues", "/stats"), ("/stats", "/queues")])
def test_the_server_lists_queues_page_by_page_and_what_it_has_read_if_a_page_takes_too_long(
    names: Sequence[str], place: dict[str, str], monkeypatch: pytest.MonkeyPatch, path: str, other: str
) -> None:
    with serving(**place) as web:
        assert names_of(web, path, limit=30) == [names[:30], names[30:60], names[60:]]
        cursor = web.get(path, limit=30)["next"]
        assert web.get(other, code=400, cursor=cursor)["field"] == "cursor"
        assert web.get("/stats", code=400, cursor=cursor, windowMs=60_000)["field"] == "cursor"
        assert web.get(path, code=400, limit=1_001)["field"] == "limit"
    monkeypatch.setattr(queue_access, "READING_S", 0.0)
    with serving(**place, queues=tuple(names[:4])) as web:
        assert [web.get(path, limit=limit)["partial"] for limit in (4, 1)] == [True, False]
        assert names_of(web, path) == [[name] for name in names[:4]]


def names_of(web: Web, path: str, **parameters: int) -> list[Sequence[str]]:
    """The names of the queues of each page."""
    page = web.get(path, **parameters)
    pages = [page]
    while page["next"]:
        page = web.get(path, cursor=page["next"], **parameters)
        pages.append(page)
    return [[one["queue"] for one in found[path[1:]]] for found in pages]


def test_a_scrape_that_takes_too_long_counts_the_queues_that_it_leaves_to_the_next_one(
    names: Sequence[str], options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    """A queue that was not read is not one that can't be read."""
    export, scraped = Export(options, tuple(names[:3]), 10, 60_000, 5, limit_s=0), Scraped()
    for name in [*names[:3], names[0]]:
        found = collect(export, scraped)
        assert_readable(found, {name}, set())
        assert [sample.value for sample in found if sample.family is UNREAD] == [2]
    assert "2 of 3 queues have no metrics" in caplog.text


def test_a_queue_that_can_not_be_read_is_listed_with_its_error_and_hides_no_other(
    names: Sequence[str], options: Options, client: Redis, place: dict[str, str]
) -> None:
    damaged = names[4]
    client.set(f"{place['prefix']}:{damaged}:delayed", "text")
    with serving(**place, queues=tuple(names[:6])) as web:
        for path in ("/queues", "/stats"):
            found = {one["queue"]: one.get("error") for one in web.get(path)[path[1:]]}
            assert sorted(found) == names[:6]
            assert [name for name, error in found.items() if error] == [damaged]
            assert "WRONGTYPE" in str(found[damaged]) or "expected" in str(found[damaged])
        page = web.client.get("/", headers=READING).text
        assert all(name in page for name in names[:6])
        assert page.count(">unreadable<") == 1
    assert_readable(collect(Export(options, tuple(names[:6]), 10, 60_000, 5)), {*names[:6]} - {damaged}, {damaged})


def assert_readable(found: Sequence[Sample], readable: set[str], others: set[str]) -> None:
    """Metrics show the queues that can be read, and say of the others that they can't."""
    said = {sample.labels["queue"]: sample.value for sample in found if sample.family is READABLE}
    assert said == dict.fromkeys(readable, 1) | dict.fromkeys(others, 0)
    assert {sample.labels["queue"] for sample in found if sample.family not in (READABLE, UNREAD)} == readable


def test_queues_on_lost_nodes_of_a_cluster_and_in_slots_without_a_node_do_not_hide_the_others(
    own_redis: Callable[..., EmbeddedRedis],
) -> None:
    config = {"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}
    here, other = own_redis(config), own_redis(config)
    with Redis.from_url(here.url) as client, Redis.from_url(other.url) as there:
        slots = {tag: int(client.execute_command("CLUSTER", "KEYSLOT", tag)) for tag in ("{a}", "{b}", "{c}")}
        there.execute_command("CLUSTER", "ADDSLOTS", slots["{b}"])
        client.execute_command("CLUSTER", "ADDSLOTS", *({*range(16384)} - {slots["{b}"], slots["{c}"]}))
        client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port)
        wait_until(lambda: refusal(client, "{b}").startswith("MOVED"), "the nodes to have met")
        assert "CLUSTERDOWN" in refusal(client, "{c}") or "not served" in refusal(client, "{c}")
    BullQueue("{a}", url=here.url).add({})
    other.kill()
    options = parse_options({"url": here.url, "retryMs": "0", "queue": "*"}, ReadOptions)
    for queues in (("{a}", "{b}", "{c}"), ("{c}", "{a}"), ("{a}", "{b}"), ("{b}", "{a}")):
        for sample in (0, 10):
            assert_readable(collect(Export(options, queues, sample, 60_000, 5)), {"{a}"}, {*queues} - {"{a}"})


def test_a_cluster_that_is_down_is_not_asked_for_each_queue(
    own_redis: Callable[..., EmbeddedRedis], round_trips: Callable[[Callable[[], object]], int]
) -> None:
    url = own_redis({"cluster-enabled": "yes"}).url
    options = parse_options({"url": url, "retryMs": "0", "queue": "*"}, ReadOptions)

    def trips(count: int) -> int:
        def refused() -> None:
            with pytest.raises(ConnectionLost, match="does not serve the slot"):
                collect(Export(options, tuple(f"{{q{n}}}" for n in range(count)), 10, 60_000, 5))

        return round_trips(refused)

    assert trips(2 * TOGETHER) == trips(2)


def refusal(client: Redis, key: str) -> str:
    try:
        client.get(key)
    except ResponseError as error:
        return f"{'MOVED ' if isinstance(error, MovedError) else ''}{error}"
    return ""


def test_round_trips_that_queues_share_read_few_events(
    options: Options, open_queue: Callable[..., BullQueue], client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, events = [f"q{n}" for n in range(30)], 100
    with client.pipeline(transaction=False) as pipeline:
        for name in names:
            queue = open_queue(name, "bullmq")
            queue.add({})
            for n in range(events):
                pipeline.xadd(queue.handle.keys["events"], {"event": "added", "jobId": str(n), "name": "send"})
        pipeline.execute()
    send, read = Connection.pipeline, list[int]()

    def noting(self: Connection, commands: Sequence[Command]) -> list[Any]:
        replies = send(self, commands)
        read.append(sum(len(reply) for command, reply in zip(commands, replies, strict=True) if "COUNT" in command))
        return replies

    monkeypatch.setattr(Connection, "pipeline", noting)
    found = collect(Export(options, tuple(names), 10, 300_000, 5))
    assert_readable(found, {*names}, set())
    rates = [sample.value for sample in found if sample.family is ADDED_RATE]
    assert len(rates) == len(names)
    assert all(round(rate * 300) > events for rate in rates)
    assert max(read) <= 1_000


# run_together


def doubled(key: str, times: int) -> RoundTrips[int]:
    """Doubles a number, and that number, and so on."""
    (value,) = yield [("GET", key)]
    for _ in range(times):
        try:
            yield [("SET", key, int(value) * 2), ("LPUSH", key, "x") if int(value) > 100 else ("PING",)]
        except DialectError:
            return -1
        (value,) = yield [("GET", key)]
    if int(value) == 12:
        raise DialectError("twelve")
    return int(value)


@pytest.fixture
def connection(options: Options) -> Iterator[Connection]:
    connection = Connection(options.redis)
    yield connection
    connection.close()


def test_each_of_several_reads_gets_its_replies_and_its_error(connection: Connection, prefix: str) -> None:
    keys = [f"{prefix}:{n}" for n in range(5)]
    connection.pipeline([("SET", key, value) for key, value in zip(keys, (1, 5, 3, 101, 2), strict=True)])
    reads = [doubled(key, times) for key, times in zip(keys, (3, 0, 2, 4, 1), strict=True)]
    assert [str(result) for result in run_together(connection, reads)] == ["8", "5", "twelve", "-1", "4"]
    assert run_together(connection, []) == []
    with pytest.raises(DialectError, match="twelve"):
        run(connection, doubled(keys[2], 0))
