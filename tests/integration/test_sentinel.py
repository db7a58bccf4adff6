"""Redis behind Sentinels: the primary is found, and found again after a fail-over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis, NewJob, OptionError, Promoter
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.options.table import QueueOptions
from spark_bull.core.queue.monitor.find import find_queues
from spark_bull.core.store.connection import Connection
from spark_bull.ops.cli import main
from spark_bull.ops.cli.status import PROBLEMS
from tests.support.redis_servers import Sentinels
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

SECRET = "s3cret"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    """For tests that leave them as they are."""
    with Sentinels(tmp_path_factory.mktemp("sentinels")) as servers:
        yield servers


def test_writers_workers_and_promoters_follow_the_primary(tmp_path: Path) -> None:
    with Sentinels(tmp_path) as servers, BullQueue("mail", url=servers.url, protocol="bullmq") as queue:
        done: list[int] = []
        worker = OurWorker(queue.handle, lambda job: done.append(job.data["n"]), chunk_size=5)
        with worker, Promoter(servers.url, ["mail"], protocol="bullmq"):
            queue.add_many(NewJob({"n": n}) for n in range(20))
            wait_until(lambda: queue.counts()["completed"] == 20, "the first jobs")
            wait_until(lambda: worker.waits() == 1, "the slot to wait")
            servers.replace_primary()
            # The slot and the promoter waited for the lost primary.
            queue.add_many(NewJob({"n": n}, delay=50) for n in range(20, 40))
            wait_until(lambda: queue.counts()["completed"] == 40, "the jobs of the new primary")
        assert sorted(done) == list(range(40))
        assert main(["--url", servers.url, "counts", "mail"]) == 0


def test_a_primary_that_becomes_a_replica_is_left_at_once(tmp_path: Path) -> None:
    """Nobody is killed: the old primary answers, with READONLY, and ends waits with UNBLOCKED."""
    with (
        Sentinels(tmp_path) as servers,
        BullQueue("mail", url=servers.url, protocol="bullmq") as queue,
        OurWorker(queue.handle, lambda job: None, chunk_size=5) as worker,
    ):
        queue.add({})
        wait_until(lambda: queue.counts()["completed"] == 1, "the first job")
        wait_until(lambda: worker.waits() == 1, "the slot to wait")
        old = servers.primary
        wait_until(servers.begin_fail_over, "a fail-over to begin")
        wait_until(lambda: servers.primary is not old, "the fail-over")
        queue.add({})
        wait_until(lambda: queue.counts()["completed"] == 2, "the job of the new primary")


def test_the_address_that_sentinels_announce_can_be_mapped_and_one_that_answers_is_enough(servers: Sentinels) -> None:
    announced = f"127.0.0.1:{servers.primary.port}"
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:1, to which `addressMap` maps {announced}, .*got none: "):
        BullQueue("mail", url=servers.url, address_map={announced: "127.0.0.1:1"}, retry_ms=0)
    place = f"127.0.0.1:{servers.sentinel.port}"
    url = servers.url.replace(place, f"127.0.0.1:1,{place}")
    with BullQueue("mail", url=url, address_map={announced: "localhost"}) as queue:
        assert queue.add({}) == "1"


@pytest.mark.parametrize("kind", ["sentinel", "list"])
def test_an_idle_connection_is_not_opened_again_to_a_server_that_is_no_longer_the_primary(
    kind: str, tmp_path: Path, own_redis: Callable[..., EmbeddedRedis]
) -> None:
    """redis-py connects again without a word when it finds that a server has closed an idle connection."""
    with ExitStack() as stack:
        if kind == "sentinel":
            servers = stack.enter_context(Sentinels(tmp_path))
            url, replace_primary = servers.url, servers.replace_primary
        else:
            primary, other = own_redis(), own_redis()
            follow(other, primary)
            url = f"redis://127.0.0.1:{primary.port},127.0.0.1:{other.port}/0"

            def replace_primary() -> EmbeddedRedis:
                primary.kill()
                with Redis.from_url(other.url) as client:
                    client.replicaof("NO", "ONE")
                return primary

        connection = Connection(RedisSettings(url))
        asks = [
            lambda: connection.pipeline([("INFO", "server")], raw=True)[0],
            lambda: connection.call("INFO", "server"),
        ]
        for ask in asks:
            ask()
        old = replace_primary().start()
        if kind == "list":
            follow(old, other)
        for ask in asks:
            said = ask()
            port = said["tcp_port"] if isinstance(said, dict) else int(said.split(b"tcp_port:")[1].split()[0])
            assert port != old.port


def follow(replica: EmbeddedRedis, primary: EmbeddedRedis) -> None:
    with Redis.from_url(replica.url) as client:
        client.replicaof("127.0.0.1", str(primary.port))
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica to follow")


def test_sentinels_have_a_password_of_their_own(tmp_path: Path) -> None:
    with Sentinels(tmp_path, SECRET) as servers:
        with pytest.raises(ConnectionLost, match=r"got none|refused") as error:
            BullQueue("mail", url=servers.url, retry_ms=0)
        assert SECRET not in str(error.value)
        queue = BullQueue("mail", url=servers.url, redis={"sentinel_password": SECRET})
        assert queue.add({}) == "1"
        assert SECRET not in repr(queue.handle)


def test_a_user_of_sentinels_needs_only_the_documented_rights(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/access.md").read_text()
    (allowed,) = re.findall(r"^- sentinel: `([^`]+)`$", page, re.MULTILINE)
    own = {"sentinel_username": "watcher", "sentinel_password": SECRET}
    with Sentinels(tmp_path, watcher=f"watcher on >{SECRET} {allowed}") as servers:
        assert BullQueue("mail", url=servers.url, redis=own).add({}) == "1"
        with Redis.from_url(servers.sentinel.url) as client:
            client.execute_command("ACL", "SETUSER", "watcher", f"-{allowed[1:].partition('|')[0]}")
        with pytest.raises(ConnectionLost, match=r"denied the user a required permission: .*sentinel"):
            BullQueue("mail", url=servers.url, redis=own, retry_ms=0)


def test_a_name_that_the_sentinels_do_not_watch_is_refused_at_once(servers: Sentinels) -> None:
    url = servers.url.replace(f"/{servers.NAME}/", "/other/")
    with pytest.raises(ConnectionLost, match="to watch a primary named 'other', they watch: main"):
        BullQueue("mail", url=url)


def test_the_address_of_a_sentinel_is_refused_with_the_url_to_use(
    servers: Sentinels, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Connection(RedisSettings(servers.sentinel.url, retry_ms=0))
    said = rf"is a Redis Sentinel.*`url`: redis\+sentinel://127\.0\.0\.1:{servers.sentinel.port}/main "
    for ask in (
        lambda: BullQueue("mail", url=servers.sentinel.url),
        lambda: server.call("GET", "bull:mail:id"),
        lambda: server.pipeline([("GET", "bull:mail:id")], raw=True),
        lambda: find_queues(server, "bull"),
        lambda: server.check("bull", ["mail"], write=True),
    ):
        with pytest.raises(ConnectionLost, match=said):
            ask()
    assert main(["--url", servers.sentinel.url, "doctor"]) == PROBLEMS
    assert "is a Redis Sentinel, which holds no queues" in capsys.readouterr().out


def test_a_url_of_sentinels_names_the_primary() -> None:
    for url in ["redis+sentinel://h", "redis+sentinel://h/", "redis+sentinel://h:0/main", "redis+sentinel://h/main/x"]:
        with pytest.raises(OptionError, match="name of the primary"):
            parse_options({"url": url}, QueueOptions)
