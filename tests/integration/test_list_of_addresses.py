"""Several addresses in one URL: the one of the primary is used, and looked for again when it is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import ConnectionError, Redis

from spark_bull import BullQueue, EmbeddedRedis
from spark_bull.core.store.servers import Servers
from spark_bull.core.store.settings import RedisSettings
from tests.support.wait import wait_until
from tests.support.worker import OurWorker


def test_the_address_of_the_primary_is_found_and_found_again(own_redis: Callable[..., EmbeddedRedis]) -> None:
    primary, replica = own_redis(), own_redis()
    with Redis.from_url(replica.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", primary.port)
        wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica to follow")
        url = f"redis://127.0.0.1:{replica.port},127.0.0.1:{primary.port}/0"
        queue = BullQueue("mail", url=url, protocol="bullmq")
        assert queue.add({}) == "1"
        with OurWorker(queue.handle, lambda job: None, chunk_size=1) as worker:
            wait_until(lambda: queue.counts()["completed"] == 1, "the first job")
            wait_until(lambda: worker.waits() == 1, "the slot to wait")
            wait_until(lambda: client.get("bull:mail:id") == b"1", "the replica to have the job")
            primary.kill()
            client.execute_command("REPLICAOF", "NO", "ONE")
            assert queue.add({}) == "2"
            wait_until(lambda: queue.counts()["completed"] == 2, "the job of the new primary")


def test_a_server_without_hello_is_not_taken_for_the_primary(own_redis: Callable[..., EmbeddedRedis]) -> None:
    old = own_redis({"rename-command": 'HELLO ""'})
    url = f"redis://127.0.0.1:{old.port},127.0.0.1:{own_redis().port}/0"
    settings = RedisSettings(url, extra=(("protocol", "2"),))
    with pytest.raises(ConnectionError, match="the server is not the primary any more"):
        Servers(settings).at(None).ping()
