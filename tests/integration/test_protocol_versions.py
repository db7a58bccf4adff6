"""Tests with both versions of the protocol between redis-py and Redis. Before redis-py 8, version 2 is the default."""

from __future__ import annotations

import pytest
from redis import Redis

from spark_bull import BullQueue, NewJob
from spark_bull.core.clock import DELAYED_SCALE
from spark_bull.core.queue.monitor.activity import activity
from spark_bull.core.queue.work.claim import limited_groups_ms
from spark_bull.ops.cli.doctor.queues import overdue
from spark_bull.ops.cli.doctor.server import Server, eviction

PAST_MS = 1_000


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("protocol", ["bullmq", "bull"])
def test_reads_are_the_same_in_both_versions(
    client: Redis, redis_url: str, prefix: str, protocol: str, version: str
) -> None:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=protocol, redis={"protocol": version}) as queue:
        keys, connection = queue.handle.keys, queue.handle.connection
        ids = queue.add_many([NewJob({"n": n}, delay=n * 60_000) for n in range(3)]).ids
        read = [(job.id, job.data, job.delay) for job in (*queue.page("wait"), *queue.page("delayed"))]
        assert read == [(ids[n], {"n": n}, n * 60_000) for n in range(3)]
        client.zadd(keys["delayed"], {ids[1]: PAST_MS * DELAYED_SCALE})
        client.zadd(keys["completed"], {"8": 5_000, "9": 7_000})
        found = activity(queue.handle)
        assert (found.overdue, found.overdue_since) == (1, PAST_MS)
        if protocol == "bull":
            assert found.last_active_on == 7_000
        (finding,) = overdue(queue.handle)
        assert "1 delayed job, the first late by" in finding.found
        queue.add_many([NewJob({}, priority=2), NewJob({}, priority=2), NewJob({}, priority=9)])
        counted = queue.counts_by("priority")
        assert {priority: jobs for one in counted.values() for priority, jobs in one.items() if priority} == {
            2: 2,
            9: 1,
        }
        queue.upsert_scheduler("daily", every=86_400_000)
        (schedule,) = queue.schedulers()
        assert (schedule.id, schedule.every, schedule.next is not None) == ("daily", 86_400_000, True)
        if protocol == "bullmq":
            far = 1 << 45
            client.zadd(keys["group_windows"], {"tenant": far})
            client.zadd(keys["group_delayed"], {"1": 1})
            assert 0 < limited_groups_ms(queue.handle) < far
        assert list(eviction(Server(connection, connection.server_info(), keys.prefix)))
