"""All verbs in Spark: with the rights of docs/access.md, by any node of a cluster, with the limits of managed Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, Worker
from tests.spark.conftest import Bull, collected
from tests.support.managed import managed
from tests.support.redis_servers import PASSWORD, RedisCluster, rules
from tests.support.wait import wait_until

#: One slot of a cluster.
PREFIX: Final = "{test-p}"
VERBS: Final = ("dispatch", "inspect", "process", "collect", "events", "schedule", "manage")
JOBS: Final = 20

Urls = Mapping[str, str]


@pytest.fixture(params=["acl", *(pytest.param(kind, marks=pytest.mark.rest) for kind in ("cluster", "managed"))])
def urls(
    request: pytest.FixtureRequest, own_redis: Callable[..., EmbeddedRedis], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Urls]:
    """The URL of each verb: with a user of its own, or without one for the cluster and the limits of services."""
    if request.param == "managed":
        with managed("all at once", tmp_path_factory.mktemp("certificates")) as service:
            yield {"admin": service.server.url, **dict.fromkeys(VERBS, service.url)}
    elif request.param == "cluster":
        with RedisCluster(2) as cluster:
            home = cluster.home(f"{PREFIX}:")
            other = next(server for server in cluster.primaries if server is not home)
            yield dict.fromkeys(("admin", *VERBS), other.url)
    else:
        server = own_redis()
        with Redis.from_url(server.url) as client:
            for verb in VERBS:
                allowed = rules("all", verb, prefix=f"{PREFIX}:*").split()
                client.execute_command("ACL", "SETUSER", verb, "on", f">{PASSWORD}", *allowed)
        users = {verb: server.url.replace("redis://", f"redis://{verb}:{PASSWORD}@") for verb in VERBS}
        yield {"admin": server.url, **users}


def echo_frame(jobs: DataFrame) -> DataFrame:
    return jobs.select("id", "token", f.get_json_object("data", "$.n").cast("int").alias("returnvalue"))


def test_all_verbs_work(spark: SparkSession, urls: Urls, tmp_path: Path) -> None:
    protocol = "bullmq"
    with BullQueue("q", url=urls["admin"], prefix=PREFIX, protocol=protocol) as queue:
        for number, processor in enumerate((lambda job: job.data["n"], echo_frame), 1):
            numbers = spark.range(1, JOBS + 1).withColumnRenamed("id", "n")
            Bull(spark, urls["dispatch"], PREFIX).write(numbers, protocol=protocol)
            options = {"url": urls["process"], "prefix": PREFIX, "protocol": protocol, "progress": False, "slots": 1}
            with Worker(spark, "q", processor, **options) as worker:
                wait_until(lambda number=number: queue.counts()["completed"] == number * JOBS, "all jobs to complete")
                assert worker.status().state == "running"
        assert Bull(spark, urls["inspect"], PREFIX).read(schema="id STRING").count() == 2 * JOBS
        rows = collected(Bull(spark, urls["collect"], PREFIX).stream(startingOffsets="earliest"), tmp_path)
        assert sorted(int(row.id) for row in rows) == list(range(1, 2 * JOBS + 1))
        values = Counter((row.state, row.returnvalue) for row in rows)
        assert values == {("completed", str(n)): 2 for n in range(1, JOBS + 1)}
        events = Bull(spark, urls["events"], PREFIX).read(view="events")
        assert events.where("event = 'completed'").count() == 2 * JOBS
        daily = spark.sql("SELECT 'daily' AS id, 86400000L AS every")
        Bull(spark, urls["schedule"], PREFIX).write(daily, mode="schedule", protocol=protocol)
        assert [scheduler.id for scheduler in queue.schedulers()] == ["daily"]
        removed = spark.sql("SELECT '1' AS id, 'remove' AS action")
        Bull(spark, urls["manage"], PREFIX).write(removed, mode="manage", protocol=protocol)
        assert queue.job("1") is None
