"""The rows of the jobs of a queue: each job of the histories has the data {"row": …}."""

from __future__ import annotations

import json
from collections.abc import Sequence

from redis import Redis

from spark_bull.queue.core.handle import QueueHandle


def rows_of(client: Redis, handle: QueueHandle, ids: Sequence[bytes]) -> list[str]:
    """The rows of jobs; those that are gone are named by their ids."""
    pipeline = client.pipeline(transaction=False)
    for job_id in ids:
        pipeline.hget(handle.keys.job(job_id.decode()), "data")
    found = pipeline.execute()
    return [json.loads(data)["row"] if data else f"gone-{one.decode()}" for one, data in zip(ids, found, strict=True)]


def rows_by_state(client: Redis, handle: QueueHandle) -> dict[str, list[str]]:
    """The rows of each state that has jobs; those of lists in the order in which they will start."""
    rows = {}
    for name, state in handle.dialect.states.items():
        key = handle.keys[state.key]
        ids = client.lrange(key, 0, -1)[::-1] if state.kind == "list" else []
        ids = ids or (client.zrange(key, 0, -1) if state.kind == "zset" else [])
        ids = ids or (sorted(client.smembers(key)) if state.kind == "set" else [])
        # Node puts a marker among the ids.
        if ids := [one for one in ids if not one.startswith(b"0:")]:
            rows[name] = rows_of(client, handle, ids)
    return rows
