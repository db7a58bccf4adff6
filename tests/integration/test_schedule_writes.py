"""Job schedulers as rows of a write, and many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructType
from redis import Redis

from spark_bull import BullQueue, OptionError, SparkBullError
from spark_bull.core.queue.dispatch import roll_forward
from spark_bull.core.queue.dispatch.write_records import Identity
from tests.support.dump import Dump, difference, dump
from tests.support.without_spark import ScheduleSink

HOUR = 3_600_000
SCHEMA = StructType().add("id", StringType()).add("every", LongType()).add("pattern", StringType())
SCHEMA = SCHEMA.add("data", StringType())


def rows(first: int, last: int, **more: Any) -> list[dict[str, Any]]:
    given = {"every": HOUR, "pattern": None, **more}
    return [{"id": f"s{n:04}", "data": f'{{"n": {n}}}', **given} for n in range(first, last)]


StartSink = Callable[..., ScheduleSink]


@pytest.fixture
def sink(queue: BullQueue, place: dict[str, str]) -> StartSink:
    """Starts a write with these rows, a list per task."""

    def start(*tasks: list[dict[str, Any]], identity: Identity | None = None, **options: str) -> ScheduleSink:
        given = {**place, "queue": "mail", "protocol": queue.protocol, "mode": "schedule", **options}
        sink = ScheduleSink(given, SCHEMA, identity)
        for task in tasks:
            sink.task(task)
        return sink

    return start


def public(client: Redis, prefix: str) -> Dump:
    return {name: key for name, key in dump(client, prefix, "mail").items() if not name.startswith("spark:")}


@pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)
def test_schedulers_are_visible_after_the_commit(queue: BullQueue, sink: StartSink) -> None:
    write = sink(rows(0, 250), rows(250, 300))
    assert queue.schedulers() == []
    write.commit()
    assert sorted(found.id for found in queue.schedulers()) == [f"s{n:04}" for n in range(300)]
    assert sum(queue.counts().values()) == 300
    (record,) = queue.writes()
    assert (record.state, record.jobs, record.added, record.rejected) == ("finished", 300, 300, 0)


@pytest.mark.parametrize("identified", ["batch", "stream"])
def test_a_replayed_write_changes_nothing(
    queue: BullQueue, sink: StartSink, client: Redis, prefix: str, identified: str, caplog: pytest.LogCaptureFixture
) -> None:
    def write() -> None:
        options = {"txnAppId": "plans", "txnVersion": "7"} if identified == "batch" else {}
        sink(rows(0, 10), identity=None if options else Identity("query", 3), **options).commit()

    write()
    before = public(client, prefix)
    write()
    assert difference(before, public(client, prefix)) == []
    assert len(queue.writes()) == 1
    queue.obliterate()
    write()
    assert public(client, prefix) == {}
    told = [record.levelname for record in caplog.records if "nothing changed" in record.getMessage()]
    assert told == (["WARNING"] * 2 if identified == "batch" else [])


def test_a_stream_whose_batch_spark_does_not_name_is_refused(queue: BullQueue, sink: StartSink) -> None:
    write = sink(identity=Identity("query", 3))
    write.batch = None
    with pytest.raises(SparkBullError, match="expected Spark to tell tasks of a stream the ids"):
        write.task(rows(0, 2))
    assert queue.writes() == []


def test_an_id_that_comes_twice_in_a_write_is_refused(queue: BullQueue, sink: StartSink) -> None:
    with pytest.raises(OptionError, match=r"row 2: expected each `id` once, .* twice \(also in row 1\)"):
        sink([*rows(0, 2), *rows(1, 2)])
    with pytest.raises(OptionError, match=r"expected each `id` once, got 's0001' of queue mail twice \(in two"):
        sink(rows(0, 2), rows(1, 3)).commit()
    assert (queue.schedulers(), queue.writes()) == ([], [])


def test_short_intervals_are_warned_about_once(sink: StartSink, caplog: pytest.LogCaptureFixture) -> None:
    sink(rows(0, 10, every=50), rows(10, 20, every=50), rows(20, 30)).commit()
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "20 job schedulers run more often than every 100 ms, such as s0000, s0001, s0002" in record.getMessage()


def test_a_scheduler_whose_next_job_exists_does_not_stop_the_others(
    queue: BullQueue, sink: StartSink, client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    queue.upsert_scheduler("s0005", pattern="0 0 1 1 *")
    (job,) = queue.page("delayed")
    # A job in no state can't be replaced.
    client.zrem(queue.handle.keys["delayed"], job.id)
    sink(rows(0, 10, every=None, pattern="0 0 1 1 *")).commit()
    (record,) = queue.writes()
    assert (record.added, record.rejected) == (9, 1)
    assert "1 job schedulers of queue mail were not changed" in caplog.text
    assert len(queue.page("delayed")) == 9


@pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)
def test_a_write_changes_the_schedulers_of_the_write_before(queue: BullQueue, sink: StartSink) -> None:
    for every in (HOUR, 2 * HOUR):
        sink(rows(0, 10, every=every)).commit()
    assert [found.every for found in queue.schedulers()] == [2 * HOUR] * 10
    assert sum(queue.counts().values()) == 10


def test_waiting_jobs_of_schedulers_are_found_in_a_long_list_in_several_calls(
    queue: BullQueue, sink: StartSink, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        queue.upsert_scheduler(f"s{n:04}", every=HOUR)
    others = 300_000
    for start in range(0, others, 10_000):
        client.lpush(queue.handle.keys["wait"], *(f"other-{n}" for n in range(start, start + 10_000)))
    positions: list[int] = []
    commit = roll_forward.commit

    def noting(*args: Any, **named: Any) -> Any:
        positions.append(args[2])
        return commit(*args, **named)

    monkeypatch.setattr(roll_forward, "commit", noting)
    sink(rows(0, 20)).commit()
    assert positions == [0, 1, 2, 3, 4, 5]
    assert client.llen(queue.handle.keys["wait"]) == others + 20
    assert [found.data for found in sorted(queue.schedulers(), key=lambda one: one.id)] == [{"n": n} for n in range(20)]
