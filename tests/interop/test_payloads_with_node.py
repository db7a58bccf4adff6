"""docs/node/spark-bull-payloads.js: Node opens what Spark has sealed and stored, and the other way round."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.bull_queue import BullQueue
from tests.support.node import NODE_DIRECTORY, Peer, each_peer_of
from tests.support.wait import wait_until

pytestmark = pytest.mark.interop

LARGE = {"text": "private " * 200, "unicode": "ä€😀"}
SMALL = {"text": "private", "unicode": "ä€😀"}


@each_peer_of("bull-4", "bullmq-6")
def test_workers_of_node_open_payloads_and_keep_results(
    peer: Peer, client: Redis, open_queue: Callable[..., BullQueue], redis_url: str, prefix: str, tmp_path: Path
) -> None:
    key, folder = tmp_path / "key", tmp_path / "jobs"
    key.write_bytes(bytes(range(32)))
    keeping = {"encrypt_with": f"a=file:{key}", "offload_to": str(folder), "offload_above": "500b"}
    queue, back = (open_queue(name, peer.dialect, **keeping) for name in ("q é", "back"))
    small, large = queue.add_many([NewJob(SMALL), NewJob(LARGE)]).ids
    forged = open_queue("q é", peer.dialect).add({"$sealed": {"v": 1, "kid": "b"}})
    command = ["node", "sealed_worker.js", peer.alias, redis_url, prefix, "q é", str(key), str(folder), "500"]
    with subprocess.Popen(command, cwd=NODE_DIRECTORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        wait_until(lambda: queue.counts()["completed"] == 2 and queue.counts()["failed"] == 1, "all jobs to end")
        process.stdin.close()
    results = {job.id: job.returnvalue for job in queue.page("completed")}
    assert results == {small: {"echo": SMALL}, large: {"echo": LARGE}}
    # Both large payloads, and the large result.
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 3
    reason = client.hget(queue.handle.keys.job(forged), "failedReason")
    assert reason is not None
    assert b"`data` of job" in reason
    assert b"to have one of the keys a, got b" in reason
    assert [job.data for job in back.page("wait")] == [SMALL, LARGE]
    assert not any(b"private" in (client.dump(one) or b"") for one in client.keys(f"{prefix}:*"))


@pytest.mark.parametrize("mark", ["$sealed", "$stored"])
def test_a_payload_that_looks_like_a_kept_one_is_refused_by_node_without_keys(mark: str, tmp_path: Path) -> None:
    program = (
        "const { Payloads } = require('../../docs/node/spark-bull-payloads.js');"
        f"new Payloads({{ queue: 'q', folder: '{tmp_path}', above: 9 }}).keep('data', {{ {mark}: 1 }})"
        ".catch((error) => console.log(error.message));"
    )
    said = subprocess.run(["node", "-e", program], cwd=NODE_DIRECTORY, capture_output=True, text=True, check=True)
    assert said.stdout.startswith("expected `data` without a member $sealed or $stored")
    assert list(tmp_path.iterdir()) == []
