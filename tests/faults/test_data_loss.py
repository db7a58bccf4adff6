"""A server restarts without its data, or a replica that lagged takes over: whoever knows a lost write says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import IntegerType, StructType
from redis import Redis

from spark_bull import BullQueue, DataLost, EmbeddedRedis, NewJob, Promoter, ResultsLost, Worker
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import CollectOptions
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.core.queue.dispatch.roll_forward import KnownWrites, roll_forward
from spark_bull.core.queue.dispatch.write_records import Identity
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import work
from spark_bull.run.services.collector import Collector
from spark_bull.spark.staging import commit
from tests.spark.conftest import Bull, Files
from tests.support.redis_servers import RedisCluster
from tests.support.wait import wait_until
from tests.support.without_spark import ManageSink, ScheduleSink, Sink
from tests.support.work_bench import CLAIM_SETTINGS, completed, entries
from tests.support.writes import register_all

OwnRedis = Callable[..., EmbeddedRedis]
DURABLE = {"appendonly": "yes", "appendfsync": "always"}
ROWS = StructType().add("n", IntegerType())
DIALECTS = ("bull", "bullmq", pytest.param("bull-1", marks=pytest.mark.rest))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services look in each round; no process knows the writes of earlier tests."""
    monkeypatch.setattr("spark_bull.run.services.service.LOOK_S", 0.01)
    monkeypatch.setattr("spark_bull.run.services.promoter.MAX_PAUSE_S", 0.05)
    monkeypatch.setattr(commit, "_known", KnownWrites())


@pytest.fixture
def server(own_redis: OwnRedis) -> EmbeddedRedis:
    """It forgets all when it is killed."""
    return own_redis()


@pytest.fixture
def queue(server: EmbeddedRedis) -> Iterator[BullQueue]:
    with open_queue(server.url) as queue:
        yield queue


def write(queue: BullQueue, write_id: str, jobs: int = 1) -> None:
    register_all(queue.handle, write_id, [[NewJob({"n": n}) for n in range(jobs)]])
    roll_forward(queue.handle, write_id)


def open_queue(url: str, name: str = "q", protocol: str = "bullmq") -> BullQueue:
    return BullQueue(name, url=url, protocol=protocol)


def restart(server: EmbeddedRedis) -> None:
    server.kill()
    server.restart()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged since the last call about losses."""
    found = [text for record in caplog.records if (text := record.getMessage()).startswith("DataLost: ")]
    caplog.clear()
    return found


# What is lost


@dataclass
class Servers:
    """A primary, a replica, and a queue on whichever of them is the primary."""

    primary: EmbeddedRedis
    replica: EmbeddedRedis
    queue: BullQueue

    def replicate(self) -> None:
        with Redis.from_url(self.primary.url) as client:
            client.set("last", 1)
            wait_until(lambda: client.execute_command("WAIT", 1, 1_000), "the replica to have all writes")

    def end_replication(self) -> None:
        """From now on the replica lags. It is the primary when the other one is killed."""
        with Redis.from_url(self.replica.url) as client:
            client.replicaof("NO", "ONE")


@pytest.fixture
def servers(own_redis: OwnRedis) -> Iterator[Servers]:
    quick = {"repl-diskless-sync-delay": "0"}
    primary, replica = own_redis(quick), own_redis(quick)
    with Redis.from_url(replica.url) as client:
        client.replicaof("127.0.0.1", str(primary.port))
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica to follow")
    with open_queue(f"redis://127.0.0.1:{primary.port},127.0.0.1:{replica.port}/0") as queue:
        yield Servers(primary, replica, queue)


@pytest.mark.parametrize("later", [0, 3], ids=["nothing follows", "as many writes follow"])
def test_a_write_that_the_new_primary_lacks_is_lost(servers: Servers, later: int) -> None:
    queue, known = servers.queue, KnownWrites()
    write(queue, "kept")
    servers.replicate()
    assert known.lost([queue.handle]) == []
    servers.end_replication()
    write(queue, "gone")
    assert known.lost([queue.handle]) == []
    servers.primary.kill()
    for number in range(later):
        write(queue, f"later-{number}")

    (error,) = known.lost([queue.handle])
    last = f"later-{later - 1}" if later else "kept"
    assert "queue q: expected write gone of 20" in str(error)
    assert f":{servers.replica.port}/0 has write {last} of 20" in str(error)
    assert "The server has run for " in str(error)
    assert ", with replication id " in str(error)
    assert "write again what is missing" in str(error)
    assert known.lost([queue.handle]) == [], "a loss is said once"


def test_a_fail_over_that_loses_nothing_is_no_loss(servers: Servers) -> None:
    queue, known = servers.queue, KnownWrites()
    write(queue, "finished")
    register_all(queue.handle, "open", [[NewJob({})]])
    known.lost([queue.handle])
    servers.replicate()
    servers.end_replication()
    servers.primary.kill()
    roll_forward(queue.handle, "open")
    write(queue, "later")
    assert known.lost([queue.handle]) == []


def test_an_obliterated_queue_and_one_without_writes_are_no_loss(queue: BullQueue, server: EmbeddedRedis) -> None:
    known = KnownWrites()
    write(queue, "first", jobs=3)
    known.lost([queue.handle])
    queue.obliterate(force=True)
    assert known.lost([queue.handle]) == []
    with open_queue(server.url, "without") as without:
        without.add({})
        known.lost([without.handle])
        restart(server)
        assert known.lost([without.handle]) == []


@pytest.mark.parametrize("has_info", [True, False])
def test_a_flush_is_named_as_a_cause_where_info_is_allowed(
    queue: BullQueue, server: EmbeddedRedis, has_info: bool
) -> None:
    known = KnownWrites()
    with Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "default", "+info" if has_info else "-info")
        write(queue, "first")
        known.lost([queue.handle])
        client.flushall()
        (error,) = known.lost([queue.handle])
    assert ("has no writes. A replica that lagged has become the primary" in str(error)) != has_info
    assert "or keys were flushed, evicted or deleted" in str(error)


def test_a_write_whose_record_has_expired_is_no_loss(queue: BullQueue) -> None:
    known = KnownWrites()
    now = queue.handle.connection.now_ms()
    for age_days, losses in ((30, 0), (28, 1)):
        known.add(queue.handle, "old", now - age_days * 86_400_000)
        assert len(known.lost([queue.handle])) == losses


def test_only_the_queues_of_the_node_that_was_lost_are_named() -> None:
    known = KnownWrites()
    with RedisCluster(2) as cluster, ExitStack() as queues:
        names = ["{a}", "{b}", "{c}", "{d}"]
        opened = [queues.enter_context(open_queue(cluster.url, name)) for name in names]
        for queue in opened:
            write(queue, "first")
        handles = [queue.handle for queue in opened]
        lost = cluster.home("bull:{a}:")
        on_it = [name for name in names if cluster.home(f"bull:{name}:") is lost]
        assert 0 < len(on_it) < len(names)
        assert known.lost(handles) == []
        restart(lost)
        wait_until(lambda: cluster.is_complete(lost), "the node to be back")
        assert [str(error).split()[1] for error in known.lost(handles)] == [f"{name}:" for name in on_it]


# Who says so


def test_a_promoter_logs_a_loss_and_goes_on(
    queue: BullQueue, server: EmbeddedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    write(queue, "first")
    promoter = Promoter(server.url, ["q"], protocol="bullmq")
    promoter.once()
    restart(server)
    assert said(caplog) == []
    wait_until(lambda: promoter._losses.due, "the time of the next look")
    promoter.once()
    (text,) = said(caplog)
    assert "queue q: expected write first" in text
    queue.add({}, delay=1)
    wait_until(lambda: promoter.once().promoted == 1, "the job to be promoted")
    assert said(caplog) == []


@pytest.mark.parametrize("promoter", [False, True])
def test_a_worker_logs_a_loss_on_the_driver_and_goes_on(
    queue: BullQueue,
    server: EmbeddedRedis,
    spark: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    promoter: bool,
) -> None:
    looks: list[int] = []
    look = KnownWrites.lost

    def counted(self: KnownWrites, handles: list[QueueHandle]) -> list[DataLost]:
        found = look(self, handles)
        looks.append(len(found))
        return found

    monkeypatch.setattr(KnownWrites, "lost", counted)
    options: dict[str, Any] = {"slots": 1, "promoter": promoter, "progress": False, "retry_ms": 500}
    write(queue, "first")
    with Worker(spark, "q", lambda job: None, url=server.url, protocol="bullmq", **options):
        wait_until(lambda: queue.counts()["completed"] == 1, "the job to be processed")
        count = len(looks)
        wait_until(lambda: len(looks) > count, "another look")
        restart(server)
        wait_until(lambda: sum(looks), "a look that finds the loss")
        write(queue, "second")
        wait_until(lambda: queue.counts()["completed"] == 1, "the worker to go on")
    (text,) = said(caplog)
    assert "queue q: expected write first" in text


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_query_of_results_ends_or_logs_a_loss(
    queue: BullQueue, server: EmbeddedRedis, caplog: pytest.LogCaptureFixture, strict: str
) -> None:
    write(queue, "first")
    options = parse_options({"url": server.url, "queue": "q", "failOnDataLoss": strict}, CollectOptions)
    with closing(Collector(options, "mine")) as collector:
        done = collector.advance({}, None)
        restart(server)
        wait_until(lambda: collector._losses.due, "the time of the next look")
        if strict == "true":
            with pytest.raises(DataLost, match=r"queue q: expected write first .* With failOnDataLoss=false, "):
                collector.advance(done, None)
        else:
            assert collector.advance(done, None) == done
            (text,) = said(caplog)
            assert "queue q: expected write first" in text


def finish(queue: BullQueue, job_id: str) -> None:
    queue.add({}, job_id=job_id)
    claim = work(queue.handle, CLAIM_SETTINGS, None, 1)
    assert [job.id for job in claim.jobs] == [job_id]
    work(queue.handle, CLAIM_SETTINGS, completed(claim), 0)


@pytest.mark.parametrize("protocol", DIALECTS)
@pytest.mark.parametrize("strict", [True, False])
def test_a_query_of_results_does_not_pass_over_positions_that_are_taken_again(
    servers: Servers, caplog: pytest.LogCaptureFixture, protocol: str, strict: bool
) -> None:
    url = servers.queue.handle.connection.settings.url
    options = parse_options({"url": url, "queue": "q", "failOnDataLoss": str(strict).lower()}, CollectOptions)
    with open_queue(url, protocol=protocol) as queue:
        finish(queue, "kept")
        with closing(Collector(options, "mine")) as collector:
            done = collector.advance({}, None)
            servers.replicate()
            servers.end_replication()
            finish(queue, "gone")
            done = collector.advance(done, None)
            assert done == {"q": 2}
            servers.primary.kill()
            # They would take the positions 1 and 2.
            finish(queue, "later")
            finish(queue, "last")
            if strict:
                for _ in range(2):
                    with pytest.raises(ResultsLost, match="results end at 1 instead of 2"):
                        collector.advance(done, None)
            else:
                wait_until(lambda: collector.advance(done, None)["q"] == 5, "all finished jobs to be found again")
                ledger = ResultLedger(queue.handle, "mine")
                assert {job_id for job_id, _ in entries(ledger, done["q"])} == {"kept", "later", "last"}
                assert "results end at 1 instead of 2" in caplog.text
        if strict:
            with (
                closing(Collector(options, "mine")) as restarted,
                pytest.raises(ResultsLost, match="the query is at position 2 of its results, but Redis has 1 to 1"),
            ):
                restarted.advance(done, None)


# Writers


def save(url: str, rows: int = 2, batch: int | None = None, **more: str) -> None:
    """A batch write, or a micro-batch of one query."""
    options = {"url": url, "queue": "q", "protocol": "bullmq", **more}
    sink = Sink(options, ROWS, None if batch is None else Identity("query", batch))
    sink.task([{"n": n} for n in range(rows)])
    sink.commit()


@pytest.mark.parametrize("batch", [None, 1], ids=["batch", "micro-batch"])
def test_a_writer_logs_a_loss_and_writes(
    queue: BullQueue, server: EmbeddedRedis, caplog: pytest.LogCaptureFixture, batch: int | None
) -> None:
    save(server.url, batch=batch and 0)
    restart(server)
    save(server.url, batch=batch)
    (text,) = said(caplog)
    assert "queue q: expected write " in text
    assert queue.counts()["wait"] == 2
    save(server.url, batch=batch and 2)
    assert said(caplog) == []


@pytest.mark.parametrize("more", [{}, {"txnAppId": "nightly", "txnVersion": "2"}], ids=["batch", "with a version"])
def test_a_strict_writer_writes_nothing_after_a_loss(
    queue: BullQueue, server: EmbeddedRedis, more: dict[str, str]
) -> None:
    save(server.url)
    restart(server)
    with pytest.raises(DataLost, match=r"queue q: expected write .* With failOnDataLoss=false, "):
        save(server.url, failOnDataLoss="true", **more)
    assert queue.counts()["wait"] == 0


@pytest.mark.parametrize(("lost", "rows"), [("all", 2), ("the last micro-batch", 2), ("the last micro-batch", 0)])
def test_a_restarted_query_knows_which_micro_batch_it_has_committed(
    servers: Servers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, lost: str, rows: int
) -> None:
    url = servers.queue.handle.connection.settings.url
    if lost != "all":
        save(url, batch=0)
    servers.replicate()
    servers.end_replication()
    for batch in (0, 1, 2):
        save(url, batch=batch)
    servers.primary.kill()
    monkeypatch.setattr(commit, "_known", KnownWrites())
    found = "none" if lost == "all" else "0 as the last one"
    for _ in range(2):
        with pytest.raises(DataLost, match=f"queue q: expected micro-batch 2 of query query, .* has {found}"):
            save(url, rows, batch=3, failOnDataLoss="true")
    save(url, rows, batch=3)
    assert len(said(caplog)) == 1
    monkeypatch.setattr(commit, "_known", KnownWrites())
    save(url, batch=4, failOnDataLoss="true")
    assert said(caplog) == []


def test_micro_batches_without_rows_and_repeated_ones_are_no_loss(
    own_redis: OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_redis(DURABLE)
    for batch, rows in enumerate([2, 0, 0, 2, 0, 2]):
        for _ in range(2):
            save(server.url, rows, batch=batch, failOnDataLoss="true")
            restart(server)
    with open_queue(server.url) as queue:
        # The next micro-batch finishes it.
        register_all(queue.handle, "open", [[NewJob({})]])
    restart(server)
    save(server.url, 0, batch=2, failOnDataLoss="true")
    save(server.url, 2, batch=6, failOnDataLoss="true")
    assert said(caplog) == []
    with open_queue(server.url) as queue:
        assert queue.counts()["wait"] == 9


def test_micro_batches_to_a_part_of_the_shards_are_no_loss(
    own_redis: OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    servers = [own_redis(), own_redis()]
    urls = ",".join(server.url for server in servers)
    options = {"shardUrls": urls, "shards": "2", "queue": "q", "protocol": "bullmq", "failOnDataLoss": "true"}

    def save_batch(batch: int, rows: int) -> None:
        sink = Sink(options, ROWS, Identity("query", batch))
        sink.task([{"n": n} for n in range(rows)])
        sink.commit()

    for batch, rows in enumerate([2, 1, 0, 1, 1, 2]):
        save_batch(batch, rows)
    assert said(caplog) == []
    restart(servers[1])
    with pytest.raises(DataLost, match=r"queue q\{1\}: expected write "):
        save_batch(6, 2)


@pytest.mark.parametrize(("kind", "rows"), [(ScheduleSink, 1), (ManageSink, 0)])
def test_streams_of_schedulers_and_changes_find_losses_too(server: EmbeddedRedis, kind: type[Sink], rows: int) -> None:
    options = {"url": server.url, "queue": "q", "protocol": "bullmq", "failOnDataLoss": "true"}
    row, schema = (
        ({"id": "daily", "every": 86_400_000}, StructType().add("id", "string").add("every", "long"))
        if kind is ScheduleSink
        else ({"id": "1", "action": "remove"}, StructType().add("id", "string").add("action", "string"))
    )

    def save_batch(batch: int) -> None:
        sink = kind(options, schema, Identity("query", batch))
        sink.task([row] * rows)
        sink.commit()

    save_batch(0)
    save_batch(1)
    restart(server)
    with pytest.raises(DataLost, match="queue q: expected "):
        save_batch(2)


def test_a_streaming_write_of_spark_ends_after_a_loss_until_it_is_accepted(
    queue: BullQueue, server: EmbeddedRedis, files: Files
) -> None:
    place = {"url": server.url, "prefix": "bull", "protocol": "bullmq"}
    files.put(1, 2)
    files.write(**place, failOnDataLoss=True)
    restart(server)
    files.put(3)
    with pytest.raises(PySparkException, match=r"DataLost: queue q: expected (micro-batch 0|write) "):
        files.write(**place, failOnDataLoss=True)
    files.write(**place)
    files.put(4)
    files.write(**place, failOnDataLoss=True)
    assert sorted(job.data["n"] for job in queue.page("wait")) == [3, 4]


def test_a_batch_write_of_spark_fails_after_a_loss(server: EmbeddedRedis, bull: Bull) -> None:
    """Spark keeps the process that commits for a minute."""
    bull.write(bull.spark.range(2), url=server.url, prefix="bull", failOnDataLoss=True)
    restart(server)
    with pytest.raises(PySparkException, match="DataLost: queue q: expected write "):
        bull.write(bull.spark.range(2), url=server.url, prefix="bull", failOnDataLoss=True)
