"""Servers of other versions, protocols and addresses."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from redis import ConnectionError, Redis

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis, NewJob
from spark_bull.core.clock import DELAYED_SCALE
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.queue.handle.job_fields import MOST_PICKED, JobFields
from spark_bull.core.queue.monitor.activity import activity
from spark_bull.core.queue.work.claim import limited_groups_ms
from spark_bull.core.store import servers
from spark_bull.core.store.servers import Servers, name_and_version
from spark_bull.ops.cli import main
from spark_bull.ops.cli.doctor.queues import overdue
from spark_bull.ops.cli.doctor.server import Server, eviction
from spark_bull.ops.cli.status import DENIED, PROBLEMS
from tests.integration.test_sentinel import follow
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

WITHOUT_HELLO = {"rename-command": 'HELLO ""'}
OwnRedis = Callable[..., EmbeddedRedis]


# Versions before 6 have no HELLO.
@pytest.mark.parametrize("config", [{"requirepass": "open-sesame"}, WITHOUT_HELLO])
def test_a_server_that_is_too_old_is_named_with_its_version(
    own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], config: dict[str, str]
) -> None:
    server = own_redis(config)
    with Redis.from_url(server.url, protocol=2) as client:
        _, version = name_and_version(client.info("server"))
    monkeypatch.setattr(servers, "MIN_REDIS", (99, 2))
    where = f"redis://127.0.0.1:{server.port}/0"
    said = f"expected Redis 99.2 or newer at {where}, got: {version}; upgrade it, or give another address"
    assert main(["counts", "mail", "--url", server.url]) == DENIED
    assert capsys.readouterr().err == f"spark-bull counts: {said}\n"
    assert main(["doctor", "--url", server.url]) == PROBLEMS
    assert f"problem   redis: {said}\n" in capsys.readouterr().out


def test_a_server_whose_hello_is_disabled_can_be_used_with_resp2(own_redis: OwnRedis) -> None:
    url = own_redis(WITHOUT_HELLO).url
    with pytest.raises(ConnectionLost, match=r"to know the command HELLO, which is disabled.* `redis.protocol` to 2"):
        BullQueue("mail", url=url, redis={"protocol": "3"})
    with BullQueue("mail", url=url, redis={"protocol": "2"}) as queue:
        assert queue.add({}) == "1"


@pytest.mark.parametrize("options", [{}, {"redis": {"socket_keepalive": "false"}}])
def test_silent_connections_are_probed_unless_the_user_says_otherwise(
    own_redis: OwnRedis, options: dict[str, dict[str, str]]
) -> None:
    with BullQueue("mail", url=own_redis().url, **options) as queue:
        listener = queue.handle.connection.subscribe(["news"])
        probed = bool(listener._listener.connection._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        listener.close()
        assert probed == (not options)


PAST_MS = 1_000


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("protocol", ["bullmq", "bull"])
def test_reads_are_the_same_in_both_versions(
    client: Redis, open_queue: Callable[..., BullQueue], protocol: str, version: str
) -> None:
    queue = open_queue("q", protocol, redis={"protocol": version})
    keys, connection = queue.handle.keys, queue.handle.connection
    ids = queue.add_many([NewJob({"n": n}, delay=n * 60_000) for n in range(3)]).ids
    read = [(job.id, job.data, job.delay) for job in (*queue.page("wait"), *queue.page("delayed"))]
    assert read == [(ids[n], {"n": n}, n * 60_000) for n in range(3)]
    fields = JobFields(queue.handle, ["data", *(f"none{n}" for n in range(MOST_PICKED))])
    columns, _, _ = fields.read([ids[0].encode(), b"none"])
    assert (columns["data"], columns["none0"]) == ([b'{"n":0}', None], [None, None])
    client.zadd(keys["delayed"], {ids[1]: PAST_MS * DELAYED_SCALE})
    client.zadd(keys["completed"], {"8": 5_000, "9": 7_000})
    found = activity(queue.handle)
    assert (found.overdue, found.overdue_since) == (1, PAST_MS)
    if protocol == "bull":
        assert found.last_active_on == 7_000
    (finding,) = overdue(queue.handle)
    assert "1 delayed job, the first late by" in finding.found
    queue.add_many([NewJob({}, priority=2), NewJob({}, priority=2), NewJob({}, priority=9)])
    counted = queue.counts_by("priority").values()
    assert sorted((priority, jobs) for one in counted for priority, jobs in one.items() if priority) == [(2, 2), (9, 1)]
    queue.upsert_scheduler("daily", every=86_400_000)
    (schedule,) = queue.schedulers()
    assert (schedule.id, schedule.every, schedule.next is not None) == ("daily", 86_400_000, True)
    if protocol == "bullmq":
        far = 1 << 45
        client.zadd(keys["group_windows"], {"tenant": far})
        client.zadd(keys["group_delayed"], {"1": 1})
        assert 0 < limited_groups_ms(queue.handle) < far
    assert list(eviction(Server(connection, connection.server_info(), keys.prefix)))


def test_the_address_of_the_primary_is_found_and_found_again(own_redis: OwnRedis) -> None:
    primary, replica = own_redis(), own_redis()
    follow(replica, primary)
    url = f"redis://127.0.0.1:{replica.port},127.0.0.1:{primary.port}/0"
    with Redis.from_url(replica.url) as client, BullQueue("mail", url=url, protocol="bullmq") as queue:
        assert queue.add({}) == "1"
        with OurWorker(queue.handle, lambda job: None, chunk_size=1) as worker:
            wait_until(lambda: queue.counts()["completed"] == 1, "the first job")
            wait_until(lambda: worker.waits() == 1, "the slot to wait")
            wait_until(lambda: client.get("bull:mail:id") == b"1", "the replica to have the job")
            primary.kill()
            client.replicaof("NO", "ONE")
            assert queue.add({}) == "2"
            wait_until(lambda: queue.counts()["completed"] == 2, "the job of the new primary")


def test_a_server_without_hello_is_not_taken_for_the_primary(own_redis: OwnRedis) -> None:
    url = f"redis://127.0.0.1:{own_redis(WITHOUT_HELLO).port},127.0.0.1:{own_redis().port}/0"
    settings = RedisSettings(url, extra=(("protocol", "2"),))
    with pytest.raises(ConnectionError, match="the server is not the primary any more"):
        Servers(settings).at(None).ask("PING")
