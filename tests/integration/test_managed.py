"""All verbs work with a Redis as managed services offer it, see docs/platforms/managed-redis.md."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from redis import Redis

from spark_bull import BullQueue, LocalWorker
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import ReadOptions
from spark_bull.ops.prometheus.collect import Export, collect
from tests.integration.verbs import VERBS, doctor, redis_of
from tests.support.managed import LIMITS, managed
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.web import serving

#: With the other limits, workers are not known by their connections.
SHOW_CONNECTIONS = ("resp2", "idle", "tls")


def work_and_listen(queue: BullQueue) -> None:
    """The slot and the events wait for each of the jobs."""
    with (
        LocalWorker(queue.name, lambda job: job.data["n"], **redis_of(queue)),
        queue.events(timeout_s=PATIENCE_S) as events,
    ):
        for jobs in (2, 3):
            job_id = queue.add({"n": 0})
            wait_until(lambda jobs=jobs: queue.counts()["completed"] == jobs, "the job")
            # Messages of Bull are lost with a connection.
            if queue.protocol == "bullmq":
                assert any(event.event == "completed" and event.job_id == job_id for event in events)


def families_of(queue: BullQueue) -> set[str]:
    """The names of the metrics."""
    options = parse_options({**redis_of(queue), "protocol": queue.protocol}, ReadOptions)
    return {sample.family.name for sample in collect(Export(options, (queue.name,), 0, 60_000, 0))}


@pytest.mark.parametrize("protocol", ["bullmq", *(pytest.param(p, marks=pytest.mark.rest) for p in ("bull", "bull-1"))])
@pytest.mark.parametrize(
    "limit", [limit if limit == "rights" else pytest.param(limit, marks=pytest.mark.rest) for limit in LIMITS]
)
def test_all_verbs_work_within_the_limits_of_managed_services(
    limit: str, protocol: str, tmp_path: Path, own_log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without CLIENT UNBLOCK, nothing can end a wait.
    monkeypatch.setattr("spark_bull.run.slot.slot_queue.IDLE_S", 0.1)
    with (
        managed(limit, tmp_path) as service,
        own_log.at_level(logging.WARNING, "spark_bull"),
        Redis.from_url(service.server.url, protocol=2) as admin,
    ):
        proxy = service.proxy
        for verb, use in {**VERBS, "doctor": doctor, "wait": work_and_listen}.items():
            for key in admin.scan_iter():
                admin.unlink(key)
            with BullQueue("q", url=service.url, protocol=protocol) as queue:
                queue.add({"n": 0})
                use(queue)
                if proxy is not None:
                    wait_until(lambda: not proxy.open, f"the proxy to end all connections of {verb}")
                assert queue.counts()
        with BullQueue("q", url=service.url, protocol=protocol) as queue:
            shown = limit in SHOW_CONNECTIONS
            assert ("spark_bull_workers" in families_of(queue)) == (shown and protocol != "bull-1")
            with serving(**redis_of(queue), read_token=None, write_token=None) as web:
                workers = web.client.get("/api/queues/q/workers").json()["workers"]
                assert workers == ([] if shown else None)
                page = web.client.get("/queues/q/workers").text
                assert ("Redis does not show its connections" in page) == (not shown)
    if proxy is None:
        assert "lost Redis" not in own_log.text
    else:
        assert proxy.ended > len(VERBS)
        # What is lost with a connection is not what was tried for long.
        assert "s of trying" not in own_log.text
