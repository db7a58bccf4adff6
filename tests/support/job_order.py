"""Writes of jobs that depend on each other, and checks from events that graphs and sequences ran in order."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from pyspark.sql.types import ArrayType, StringType, StructType
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from tests.support.without_spark import Sink

ROWS = StructType().add("data", StringType()).add("jobId", StringType()).add("dependsOn", ArrayType(StringType(), True))


def rows_of(graph: Mapping[str, Sequence[str] | None], data: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    return [
        {"data": (data or {}).get(job_id, "{}"), "jobId": job_id, "dependsOn": others}
        for job_id, others in graph.items()
    ]


def graph_sink(options: Mapping[str, str], rows: Sequence[dict[str, Any]]) -> Sink:
    """A write whose rows were staged by three tasks."""
    sink = Sink({"queue": "q", "chunkSize": "50", **options}, ROWS)
    for number in range(3):
        sink.task(rows[number::3])
    return sink


def random_graph(random: Random, jobs: int) -> dict[str, list[str]]:
    """A graph in a random order of its jobs; some have many dependents, and some many dependencies."""
    ids = [f"job-{n}" for n in range(jobs)]
    graph: dict[str, list[str]] = {}
    for n, job_id in enumerate(ids):
        near = ids[max(0, n - 100) : n]
        others = random.sample(near, min(len(near), random.choice([0, 1, 1, 2, 3, 20])))
        if n > 10 and random.random() < 0.1:
            others.append(ids[random.randrange(10)])
        graph[job_id] = [*dict.fromkeys(others)]
    return dict(random.sample(sorted(graph.items()), jobs))


def check_order(client: Redis, queue: BullQueue, graph: Mapping[str, Sequence[str]]) -> None:
    """Raises AssertionError unless each job has completed once, and began after all that it depends on."""
    begun: dict[str, int] = {}
    ended: Counter[str] = Counter()
    ended_at: dict[str, int] = {}
    for place, (_, event) in enumerate(client.xrange(queue.handle.keys["events"])):
        name, job_id = event[b"event"].decode(), event.get(b"jobId", b"").decode()
        if name == "active":
            begun.setdefault(job_id, place)
        elif name == "completed":
            ended[job_id] += 1
            ended_at[job_id] = place
    assert ended == dict.fromkeys(graph, 1)
    for job_id, others in graph.items():
        for other in others:
            assert ended_at[other] < begun[job_id], f"{job_id} began before {other} had completed"


def keep_events(client: Redis, queue: BullQueue, count: int) -> None:
    """Lets the queue keep `count` events. A Node queue that is opened later sets the default again."""
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
