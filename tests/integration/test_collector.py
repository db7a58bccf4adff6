"""The collector of a query: positions of several queues, also when a queue is omitted or Redis has lost data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, DialectError, EmbeddedRedis, OptionError, QueueDamaged, ResultsLost
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import CollectOptions
from spark_bull.core.queue.collect.result_ledger import LOOKED_AT
from spark_bull.run.services.collector import Collector, EventReader, shares
from spark_bull.spark.collect.stream import ResultReader
from spark_bull.spark.schemas import SCHEMAS
from tests.support.damage import DamagedKey
from tests.support.redis_servers import become_cluster
from tests.support.wait import wait_until
from tests.support.work_bench import WorkBench, completed


@dataclass
class Queues:
    """Queues of a Redis, and collectors of them, all of one reader. All are closed after the test."""

    place: Mapping[str, str]
    client: Redis
    open_queue: Callable[..., BullQueue]
    opened: ExitStack

    def bench(self, name: str, protocol: str = "bullmq", **options: Any) -> WorkBench:
        return WorkBench(self.open_queue(name, protocol, **options), self.client)

    @cached_property
    def mail(self) -> WorkBench:
        return self.bench("mail")

    @cached_property
    def reports(self) -> WorkBench:
        return self.bench("reports")

    def collector(self, queue: str = "mail", **options: str) -> Collector:
        given = parse_options({**self.place, "queue": queue, **options}, CollectOptions)
        return self.opened.enter_context(closing(Collector(given, "mine")))


@pytest.fixture
def queues(client: Redis, place: dict[str, str], open_queue: Callable[..., BullQueue]) -> Iterator[Queues]:
    with ExitStack() as opened:
        yield Queues(place, client, open_queue, opened)


def finish(bench: WorkBench, jobs: int, **keep: int) -> None:
    """keep: the retention rule; with `count=0`, the jobs are removed."""
    bench.add(jobs)
    bench.work(completed(bench.claim(jobs), **keep))


def test_a_queue_that_is_omitted_for_a_while_keeps_its_position(queues: Queues) -> None:
    for bench in (queues.mail, queues.reports):
        finish(bench, 3)
    both = queues.collector("mail,reports")
    done = both.advance(both.first_positions(), None)
    assert done == {"mail": 3, "reports": 3}
    both.close()

    one = queues.collector()
    assert one.advance(done, None) == done
    one.close()

    finish(queues.reports, 2)
    again = queues.collector("mail,reports")
    assert again.advance(done, None) == {"mail": 3, "reports": 5}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues and dialects are looked for in each batch, and damaged queues are tried again at once."""
    monkeypatch.setattr("spark_bull.run.claims.waits.RETRY_S", 0.0)
    monkeypatch.setattr("spark_bull.run.services.collector.REFRESH_S", 0.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", ["completed", "meta"])
def test_a_damaged_queue_does_not_keep_the_results_of_others(queues: Queues, name: str) -> None:
    for bench in (queues.mail, queues.reports):
        finish(bench, 3)
    known = queues.collector("mail,reports")
    done = known.advance({}, None)
    for bench in (queues.mail, queues.reports):
        finish(bench, 2)
    with DamagedKey(queues.client, queues.mail.handle, name, "string").damaged():
        done = known.advance(done, None)
        assert done["reports"] == 5
        finish(queues.reports, 1)
        done = known.advance(done, None)
        assert done["reports"] == 6
    assert known.advance(done, None) == {"mail": 5, "reports": 6}


# With one more job, which tells bull from bull-1.
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("dialect", "kind"), [("bull-1", "string"), ("bull", "set")])
def test_a_damaged_key_is_no_change_of_the_dialect(
    queues: Queues, caplog: pytest.LogCaptureFixture, dialect: str, kind: str
) -> None:
    bench = queues.bench("q", dialect)
    finish(bench, 3)
    known = queues.collector("q")
    done = known.advance({}, None)
    finish(bench, 2)
    bench.add(1)
    key = DamagedKey(queues.client, bench.handle, "completed", kind)
    with key.damaged():
        done = known.advance(done, None)
        assert key.key in caplog.text
    assert known.advance(done, None) == {"q": 5}


@pytest.mark.usefixtures("impatient")
def test_a_query_waits_for_a_damaged_queue_whose_dialect_is_unknown_unless_it_ends_soon(
    queues: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    bench = queues.bench("q", "bull-1")
    finish(bench, 3)
    patient, glob, ending, may_end = (queues.collector(queue) for queue in ("q", "q*", "q", "q"))
    key = DamagedKey(queues.client, bench.handle, "completed", "string")
    with key.damaged():
        assert patient.advance(patient.first_positions(), None) == glob.advance(glob.first_positions(), None) == {}
        assert f"expected {key.key} to be a set or zset, found a string" in caplog.text
        with pytest.raises(QueueDamaged, match=key.key):
            ending.horizons()
        with pytest.raises(QueueDamaged, match=key.key):
            may_end.advance({}, None, may_end=True)
    assert patient.advance({}, None) == {"q": 3}
    patient.close()
    assert glob.advance({}, None) == {"q": 3}


@pytest.mark.usefixtures("impatient")
def test_a_queue_that_another_library_has_made_anew_ends_the_query(queues: Queues) -> None:
    old, new = (queues.bench("q", dialect) for dialect in ("bull-1", "bull"))
    finish(old, 3)
    dated = queues.collector("q", startingOffsets="2026-01-01")
    with pytest.raises(OptionError, match="for dialects that store finish times, got queue q of dialect bull-1: use"):
        dated.advance({}, None)
    dated.close()
    known = queues.collector("q")
    done = known.advance({}, None)
    old.queue.obliterate(force=True)
    finish(new, 1)
    with pytest.raises(DialectError, match=r"to have dialect bull-1, got bull .*`completed` is a ZSET"):
        known.advance(done, None)


def test_a_ledger_that_has_lost_entries_is_an_error(bench: WorkBench, queues: Queues) -> None:
    finish(bench, 3)
    known = queues.collector()
    done = known.advance({}, None)
    keys = bench.handle.keys.results("mine")
    bench.client.delete(keys["ledger"])
    with pytest.raises(ResultsLost, match="its results end at 0 instead of 3"):
        known.advance(done, None)
    known.close()

    careless = queues.collector(failOnDataLoss="false")
    assert careless.advance(done, None) == {"mail": 6}


def test_events_are_read_between_batches_before_they_are_trimmed(bench: WorkBench, queues: Queues) -> None:
    bench.client.hset(bench.key("meta"), "opts.maxLenEvents", 1_000)
    known = queues.collector()
    assert known.advance({}, None) == {"mail": 0}
    ledger = bench.handle.keys.results("mine")["ledger"]
    for finished in range(200, 2_001, 200):
        finish(bench, 200, count=0)
        wait_until(lambda n=finished: bench.client.llen(ledger) == n, f"the events of {finished} jobs are read")
    assert bench.client.xlen(bench.key("events")) < 4 * 2_000
    assert known.advance({"mail": 0}, None) == {"mail": 2_000}


def test_without_events_kept_jobs_are_collected_and_jobs_that_are_removed_are_missed(queues: Queues) -> None:
    bench = queues.bench("q", events="none")
    finish(bench, 3)
    known = queues.collector("q")
    done = known.advance({}, None)
    finish(bench, 2, count=0)
    finish(bench, 1)
    assert (done, known.advance(done, None)) == ({"q": 3}, {"q": 4})


def test_events_of_queues_in_several_slots_of_a_cluster_are_read_between_batches(
    queues: Queues, own_redis: Callable[..., EmbeddedRedis]
) -> None:
    url = own_redis({"cluster-enabled": "yes"}).url
    with Redis.from_url(url) as client:
        become_cluster(client)
        benches = [WorkBench(BullQueue(name, url=url, protocol="bullmq"), client) for name in ("{a}", "{b}", "{c}")]
        known = queues.collector("{a},{b},{c}", url=url, prefix="bull")
        for bench in benches:
            finish(bench, 1)
        done = known.advance({}, None)
        for _ in range(2):
            for bench in benches:
                finish(bench, 2, count=0)
                done[bench.handle.keys.queue] += 2
            wait_until(lambda: known.found() == done, what="the events of all queues to be read")


def test_jobs_lost_with_their_events_end_a_strict_query_until_the_loss_is_accepted(
    bench: WorkBench, queues: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    finish(bench, 3)
    known = queues.collector()
    done = known.advance({}, None)
    known.close()

    finish(bench, 2)
    finish(bench, 7, count=0)
    bench.client.xtrim(bench.key("events"), maxlen=0, approximate=False)
    for _ in range(2):
        known = queues.collector()
        with pytest.raises(ResultsLost, match=r"queue mail: .* about 7 finished jobs are lost\. .*maxLen"):
            known.advance(done, None)
        known.close()

    careless = queues.collector(failOnDataLoss="false")
    assert careless.advance(done, None) == {"mail": 5}
    assert "about 7 finished jobs are lost" in caplog.text
    careless.close()

    known = queues.collector()
    assert known.advance(done, None) == {"mail": 5}


def test_events_are_not_read_while_too_many_results_are_unread_or_the_collector_is_closed(
    bench: WorkBench, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bull.run.services.queue_collector.MAX_UNREAD", 5)
    finish(bench, 5)
    known = queues.collector()
    done = known.advance({}, None)
    assert known._open["mail"].read_events() is None
    known.release(done)
    assert known._open["mail"].read_events() is not None
    known.close()
    assert known._open["mail"].read_events() is None
    # Redis notices a closed connection when it looks at it next.
    wait_until(
        lambda: known._owner not in {one["name"] for one in bench.client.client_list()}, "the connection to be closed"
    )


def test_a_batch_begins_with_some_jobs_and_the_others_are_discovered_meanwhile(
    bench: WorkBench, queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_bull.run.services.collector.ENOUGH_JOBS", 1)
    finish(bench, 3 * LOOKED_AT)
    # Jobs are found in the set of finished jobs, LOOKED_AT per call: all events would be read before the first batch.
    bench.client.xtrim(bench.handle.keys["events"], maxlen=0, approximate=False)
    known = queues.collector()
    first = known.advance({}, 10_000)
    assert 0 < first["mail"] < 3 * LOOKED_AT
    known.discover_ahead(first, 10_000)
    wait_until(lambda: known.found() == {"mail": 3 * LOOKED_AT}, "all jobs to be discovered")
    assert known.advance(first, 10_000) == {"mail": 3 * LOOKED_AT}


def test_a_batch_waits_for_enough_jobs_unless_the_query_may_end(bench: WorkBench, queues: Queues) -> None:
    finish(bench, 2)
    patient = queues.collector(minJobsPerTrigger="3", maxTriggerDelayMs="3600000")
    assert patient.advance({}, 10) == {}
    finish(bench, 1)
    wait_until(lambda: patient.advance({}, 10) == {"mail": 3}, "enough jobs")
    finish(bench, 1)
    assert patient.advance({"mail": 3}, 10) == {"mail": 3}
    assert patient.advance({"mail": 3}, 10, may_end=True) == {"mail": 4}


def test_a_batch_has_jobs_up_to_a_number_of_bytes_one_of_each_queue_at_least(bench: WorkBench, queues: Queues) -> None:
    for size in (500, 1_500, 300, 300, 300):
        bench.add(1)
        bench.work(completed(bench.claim(1), f'"{"x" * size}"'))
    # What is left of a removed job is the value in the ledger.
    bench.add(1)
    bench.work(completed(bench.claim(1), f'"{"x" * 900}"', count=0))
    known, done, ends = queues.collector(maxBytesPerTrigger="1300"), dict[str, int](), list[int]()
    known._fields = ["returnvalue"]
    for _ in range(5):
        done = known.advance(done, 1_000)
        ends.append(done["mail"])
    assert ends == [1, 2, 5, 6, 6]

    finish(queues.reports, 3)
    known.close()
    both = queues.collector("mail,reports", maxBytesPerTrigger="1")
    done = both.advance(done, 1_000)
    assert done == {"mail": 6, "reports": 1}
    assert both.advance(done, None) == {"mail": 6, "reports": 3}, "without limits"


def finish_without_events(bench: WorkBench, count: int) -> None:
    """Jobs are found in the set of finished jobs, LOOKED_AT per call."""
    for start in range(0, count, LOOKED_AT):
        finish(bench, min(LOOKED_AT, count - start))
    bench.client.xtrim(bench.handle.keys["events"], maxlen=0, approximate=False)


def test_as_many_jobs_are_discovered_as_a_batch_takes_of_all_queues(queues: Queues) -> None:
    most, share = 4 * LOOKED_AT, 2 * LOOKED_AT
    for bench in (queues.mail, queues.reports):
        finish_without_events(bench, 4 * share)
    known = queues.collector("mail,reports")
    first = known.advance({}, most)
    assert first == {"mail": share, "reports": share}
    assert max(known.found().values()) <= share + LOOKED_AT
    known.discover_ahead(first, most)
    known._prefetch.result()
    assert 2 * share <= min(known.found().values()) <= max(known.found().values()) <= 2 * share + LOOKED_AT
    assert known.advance(first, most) == {"mail": 2 * share, "reports": 2 * share}


def test_a_queue_with_many_jobs_fills_the_batch_if_others_have_few(queues: Queues) -> None:
    finish_without_events(queues.mail, 4 * LOOKED_AT)
    finish_without_events(queues.reports, 100)
    known = queues.collector("mail,reports")
    most = 2 * LOOKED_AT
    assert known.advance({}, most) == {"mail": most - 100, "reports": 100}
    assert most - 100 <= known.found()["mail"] <= most + LOOKED_AT
    assert known.advance({"mail": most - 100, "reports": 100}, None) == {"mail": 4 * LOOKED_AT, "reports": 100}


def test_discovery_ahead_stops_before_the_next_queue(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without this, the event reader could read the events of both queues before `finish_without_events` removes them.
    monkeypatch.setattr(EventReader, "round", lambda reader: reader._over.wait())
    known = queues.collector("mail,reports")
    for bench in (queues.mail, queues.reports):
        bench.add()
    assert known.advance({}, 10) == {"mail": 0, "reports": 0}
    for bench in (queues.mail, queues.reports):
        finish_without_events(bench, 3)
    known._discover({"mail": 0, "reports": 0}, 10, lambda: known.found()["mail"] > 0)
    assert known.found() == {"mail": 3, "reports": 0}
    assert known.advance({"mail": 0, "reports": 0}, 10) == {"mail": 3, "reports": 3}


def test_the_jobs_of_a_batch_are_divided_among_its_tasks_and_its_queues(redis_url: str) -> None:
    for rows, jobs, sizes in [
        ("10", 10, [10]),
        ("8", 10, [5, 5]),
        ("4", 10, [4, 4, 2]),
        ("3", 10, [3, 3, 3, 1]),
        ("150000", 150_000, [150_000]),
        (None, 49_999, [49_999]),
        *((None, jobs, [jobs // 2] * 2) for jobs in (50_000, 150_000, 300_000)),
        (None, 300_001, [100_001, 100_001, 99_999]),
    ]:
        given = {"rowsPerPartition": rows} if rows else {}
        options = parse_options({"url": redis_url, "queue": "mail"} | given, CollectOptions)
        reader = ResultReader(options, SCHEMAS["jobs"], ("id",))
        start, end = ({"queues": {"mail": position}, "reader": "mine"} for position in (0, jobs))
        ends = list(accumulate(sizes))
        assert [part.value[2:] for part in reader.partitions(start, end)] == list(zip([0, *ends], ends, strict=False))
    assert shares({"a": 100, "b": 1, "c": 40}, 61) == {"a": 30, "b": 1, "c": 30}
    assert shares({"a": 5, "b": 1}, 60) == {"a": 5, "b": 1}
    assert shares({}, 60) == {}


def test_a_wrong_protocol_is_refused_for_a_name_and_skipped_for_a_glob(
    queues: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    queues.mail.add()
    queues.bench("mail-2", "bull").add()
    named, matching = (queues.collector(name, protocol="bull") for name in ("mail", "mail*"))
    with pytest.raises(DialectError, match="expected queue mail to speak bull"):
        named.horizons()
    assert set(matching.horizons()) == {"mail-2"}
    assert "skipped a queue: expected queue mail to speak bull" in caplog.text
