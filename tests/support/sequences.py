"""Checks from a queue's events that the jobs of each sequence ran one after the other."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from redis import Redis

from spark_bull.queue.bull_queue import BullQueue


def keep_events(client: Redis, queue: BullQueue, count: int) -> None:
    """Lets the queue keep so many events. A Node queue that is opened later sets the default again."""
    client.hset(queue.handle.keys["meta"], "opts.maxLenEvents", count)


def orders(client: Redis, queue: BullQueue, key_of: Callable[[Any], str]) -> dict[str, list[int]]:
    """The numbers `n` of the jobs of each key, in the order in which they ended. key_of: the key of a payload.

    Raises AssertionError if two jobs of a key ran at once.
    """
    events = client.xrange(queue.handle.keys["events"])
    added = {event[b"jobId"].decode() for _, event in events if event[b"event"] == b"added"}
    with client.pipeline(transaction=False) as pipeline:
        for job_id in (ids := sorted(added)):
            pipeline.hget(queue.handle.keys.job(job_id), "data")
        payloads = {job_id: json.loads(data) for job_id, data in zip(ids, pipeline.execute(), strict=True)}
    running: dict[str, str] = {}
    ended: dict[str, list[int]] = defaultdict(list)
    for _, event in events:
        name, job_id = event[b"event"].decode(), event.get(b"jobId", b"").decode()
        if job_id not in payloads:
            continue
        key = key_of(payloads[job_id])
        if name == "active":
            assert running.setdefault(key, job_id) == job_id, f"jobs {running[key]} and {job_id} of {key} ran at once"
        elif name in ("completed", "failed"):
            assert running.pop(key, None) == job_id, f"job {job_id} of {key} ended, but did not run"
            ended[key].append(payloads[job_id]["n"])
        elif name == "delayed" or (name == "waiting" and event.get(b"prev") == b"active"):
            running.pop(key, None)
    assert not running
    return dict(ended)
