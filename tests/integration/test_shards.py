"""The command for logical queues, and several servers with shards, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from unittest.mock import ANY

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis, OptionError, QueueEvents, SparkBullError, shard_names
from spark_bull.ops.cli.commands import all_commands
from spark_bull.ops.cli.shards import EACH, OWN, SEVERAL
from spark_bull.run.services import service
from spark_bull.run.services.promoter import Promoter
from tests.integration.conftest import Run
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.without_spark import Sink

SHARDS = 3
ROWS = StructType().add("n", IntegerType())


@pytest.fixture(scope="module")
def servers() -> Iterator[list[EmbeddedRedis]]:
    with EmbeddedRedis() as a, EmbeddedRedis() as b:
        yield [a, b]


@pytest.fixture
def url(servers: list[EmbeddedRedis]) -> str:
    return " ".join(server.url for server in servers)


@pytest.fixture
def options(url: str, prefix: str) -> dict[str, str]:
    """The options of a write."""
    return {"url": url, "prefix": prefix, "queue": "mail", "protocol": "bullmq", "shards": str(SHARDS)}


def write(options: dict[str, str]) -> None:
    """Shards 0 and 1 get two jobs each, and shard 2 none."""
    for _ in range(2):
        sink = Sink(options, ROWS)
        sink.task([{"n": 0}, {"n": 1}])
        sink.commit()


@pytest.fixture
def run(url: str, prefix: str, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys, url, prefix)


def test_commands_take_all_shards(url: str, prefix: str, options: dict[str, str], run: Run) -> None:
    write(options)
    waiting = {row["queue"]: row["counts"]["wait"] for row in run.data("counts", "mail", "--shards", "auto")}
    assert waiting == {"mail": 4, "mail{0}": 2, "mail{1}": 2, "mail{2}": 0}
    parts = [BullQueue(name, url=url, prefix=prefix, protocol="bullmq") for name in shard_names("mail", SHARDS)]
    for verb in ("pause", "resume"):
        assert run.data(verb, "mail", "--shards", "3") == {"done": verb, "queue": "mail", "group": None}
        assert {part.is_paused() for part in parts} == {verb == "pause"}
    parts[1].handle.connection.call("LPOP", parts[1].handle.keys["wait"])
    assert run.data("remove-orphans", "mail", "--shards", "3", "--yes") == {"queue": "mail", "removed": 1}
    trimmed = sum(part.handle.connection.call("XLEN", part.handle.keys["events"]) for part in parts)
    assert run.data("trim-events", "mail", "0", "--shards", "3", "--yes") == {"queue": "mail", "removed": trimmed}
    waiting = run.data("page", "mail", "wait", "--shards", "3")
    assert [row["queue"] for row in waiting] == ["mail{0}", "mail{0}", "mail{1}"]
    assert [run.data("page", f"mail{{{n}}}", "wait") for n in (0, 1)] == [waiting[:2], waiting[2:]]
    updated = run.data("update", "mail", "--all", "--state", "wait", "--data", "{}", "--shards", "3")
    assert updated.pop("writes") == [part.writes()[-1].id for part in parts]
    assert updated == {"done": "update", "queue": "mail", "jobs": 3, "skipped": 0, "missing": 0}
    assert run.data("drain", "mail", "--shards", "3", "--yes") == {"queue": "mail", "removed": 3}
    assert run.data("reshard", "mail", "--shards", "4") == {"queue": "mail", "shards": 4}
    for said, *given in (
        ("this deletes all waiting jobs of queue mail: expected a terminal", "drain", "mail", "--shards", "4"),
        ("expected `--shards` to be 4, as queue mail has as many shards, got: 3", "counts", "mail", "--shards", "3"),
        ("a shard, such as mail{0}, got --shards, which `job` does not take", "job", "mail", "1", "--shards", "4"),
        ("expected --shards with a number", "reshard", "mail"),
        *(
            ("no such queue: none with shards, such as none{0}", *command, "--shards", "4")
            for command in (["pause", "none"], ["counts", "mail", "none"], ["doctor", "none"])
        ),
        ("such as mail{0}, got --shards, which `serve` does not take: leave it out", "serve", "--shards", "4"),
        ("which `retry` does not take with ids of jobs", "retry", "mail", "1", "--shards", "4"),
    ):
        assert said in run(*given, code=ANY)


@pytest.mark.parametrize("protocol", ["bull", "bullmq"])
def test_events_and_signals_of_all_servers_arrive(url: str, prefix: str, protocol: str) -> None:
    """Messages of Bull's channels are not passed on between servers."""
    parts = [BullQueue(name, url=url, prefix=prefix, protocol=protocol) for name in shard_names("mail", 2)]
    with (
        closing(QueueEvents([part.handle for part in parts], timeout_s=PATIENCE_S)) as events,
        Promoter(url, [part.name for part in parts], prefix=prefix, protocol=protocol),
    ):
        for part in parts:
            part.add({}, delay=1)
        for part in parts:
            wait_until(lambda part=part: part.counts()["wait"] == 1, "the job to be promoted")
        seen = set()
        while len(seen) < 2:
            seen.add(next(events).queue)
        assert seen == {"mail{0}", "mail{1}"}


@pytest.mark.parametrize("shards", ["auto", 3])
def test_a_promoter_waits_for_the_first_write_and_follows_the_number_of_shards(
    options: dict[str, str], run: Run, monkeypatch: pytest.MonkeyPatch, shards: int | str
) -> None:
    monkeypatch.setattr(service, "GLOB_S", 0.01)
    place = {"url": options["url"], "prefix": options["prefix"]}
    with Promoter(queues="mail", shards=shards, **place):
        Sink(options, ROWS).commit()
        for name in ("mail{2}", "mail{3}"):
            if name == "mail{3}":
                assert run.data("reshard", "mail", "--shards", "4") == {"queue": "mail", "shards": 4}
            part = BullQueue(name, protocol="bullmq", **place)
            part.add({}, delay=1)
            wait_until(lambda part=part: part.counts()["wait"] == 1, "a job of the shard to be promoted")
            part.drain()


def test_an_obliterated_queue_can_get_another_number_of_shards(options: dict[str, str], run: Run) -> None:
    write(options)
    old = Sink(options, ROWS)
    old.task([{"n": 0}])
    assert "done" in run.data("obliterate", "mail", "--shards", "3", "--yes")
    Sink(options | {"shards": "2"}, ROWS).commit()
    with pytest.raises(SparkBullError, match="expected the shards of queue mail to stay as they were"):
        old.commit()
    with pytest.raises(OptionError, match="expected `protocol` to be bullmq, the dialect of the shards of queue mail"):
        Sink(options | {"shards": "2", "protocol": "bull"}, ROWS)


def test_the_servers_stay_in_their_order(servers: list[EmbeddedRedis], options: dict[str, str]) -> None:
    write(options)
    reverse = " ".join(server.url for server in reversed(servers))
    with pytest.raises(OptionError, match=r"in the same order as before, but number 1, redis.* was number 2 of queue"):
        write(options | {"url": reverse})


def test_the_options_of_a_row_do_not_bypass_what_shards_refuse(options: dict[str, str]) -> None:
    sink = Sink(options, StructType().add("data", StringType()).add("opts", StringType()))
    for opts, said in (
        ('{"priority": 3}', "no `priority` with `shards`"),
        ('{"deduplication": {"id": "x"}}', "`shardBy` with `shards` and a deduplication id"),
    ):
        with pytest.raises(OptionError, match=f"row 0: expected {said}"):
            sink.task([{"data": "{}", "opts": opts}])


def test_a_lost_server_affects_its_shards_only(prefix: str, own_redis: Callable[..., EmbeddedRedis]) -> None:
    first, second = own_redis(), own_redis()
    url = f"{first.url} {second.url}"
    parts = [BullQueue(name, url=url, prefix=prefix, protocol="bullmq", retry_ms=1) for name in shard_names("mail", 2)]
    for part in parts:
        part.add({})
    second.kill()
    with pytest.raises(ConnectionLost, match=str(second.port)):
        parts[1].add({})
    parts[0].add({})
    assert parts[0].counts()["wait"] == 2
    with pytest.raises(ConnectionLost, match=str(second.port)):
        BullQueue("mail{3}", url=url, prefix=prefix, protocol="bullmq", retry_ms=1).add({})


def test_the_urls_of_servers_are_checked(redis_url: str, prefix: str) -> None:
    one, rest = "redis://u:secret@a", "://u:secret@b"
    wrong_urls = (f"{one};{rest}", f"{one}|{rest}", f'["{one}", "{rest}"', f"{one} REDIS{rest}")
    for given, said in (
        ({"shard_urls": f"{redis_url} http://x"}, "expected `shard_urls` to start with redis://"),
        ({"shard_urls": redis_url, "url": redis_url}, "expected one of `url` and `shard_urls`"),
        ({"shard_urls": "[1]"}, "expected `shard_urls` to be a list of texts, got something else, which is not shown"),
        ({"shard_urls": [one, f"redis{rest}/x"]}, "expected"),
        *(({"url": url}, "expected") for url in wrong_urls),
    ):
        with pytest.raises(OptionError, match=said) as raised:
            BullQueue("mail{0}", prefix=prefix, **given)
        assert "secret" not in str(raised.value)
    parts = BullQueue("mail{0}", url=f"{redis_url}, {redis_url},", prefix=prefix)
    assert parts.handle.connection.settings.where.endswith(redis_url)


#: What commands take beside the queue.
MORE = {
    "page": ["wait"],
    "retry": ["--all", "--state", "failed"],
    "delay": ["--all", "--for", "1h"],
    "prioritize": ["--all", "--priority", "high"],
    "update": ["--all", "--data", "{}"],
    "fail": ["--all", "--reason", "late"],
    **{name: ["--all"] for name in ("complete", "free", "discard-children")},
    "remove": ["--all", "--yes"],
    "trim-events": ["0", "--yes"],
    **{name: ["--yes"] for name in ("clean", "drain", "remove-orphans")},
}


def test_commands_take_the_shards_that_are_to_come(url: str, prefix: str, options: dict[str, str], run: Run) -> None:
    """During a change of the number of shards, the next ones do not exist yet."""
    assert {*all_commands()} > EACH | SEVERAL | OWN
    write(options)
    with BullQueue("mail{0}", url=url, prefix=prefix) as queue:
        key = queue.handle.keys["shard_layout"]
        queue.handle.connection.script("shards/begin", {"shard_layout": key}, {"next": SHARDS + 2})
    for name in sorted((EACH | SEVERAL) - {"tail", "obliterate", "doctor"}):
        run.data(name, "mail", *MORE.get(name, []), "--shards", "auto")
    # Each change of all jobs has a record, also in a shard without jobs.
    writes = run.data("writes", "mail", "--shards", "auto")
    assert {row["queue"] for row in writes} == {f"mail{{{n}}}" for n in range(SHARDS + 2)}
    report = run("doctor", "mail", "--shards", "auto", code=ANY)
    assert "mail{0}" in report
    assert "no such queue" not in report
