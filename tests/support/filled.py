"""A queue whose keys a test fills itself, as a Node library of its dialect would."""

from __future__ import annotations

import json
from dataclasses import dataclass

from redis import Redis

from spark_bull.model.jobs import Job
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.core.walk import Slice
from spark_bull.queue.jobs.read import read_jobs

NOW = 1_700_000_000_000


@dataclass
class Filled:
    """A queue whose keys the test fills itself, as a Node library of that dialect would."""

    queue: BullQueue
    client: Redis

    @property
    def states(self) -> list[str]:
        return list(self.queue.handle.dialect.states)

    def key(self, state: str) -> str:
        return self.queue.handle.keys[self.queue.handle.dialect.states[state].key]

    def put(self, state: str, ids: list[str], **fields: str | bytes | int) -> None:
        """Adds jobs to a state one after the other."""
        hashes = self.client.pipeline(transaction=False)
        for job_id in ids:
            given = {"name": "n", "data": json.dumps({"id": job_id}), "opts": "{}", "timestamp": NOW, **fields}
            hashes.hset(self.queue.handle.keys.job(job_id), mapping=given)
        hashes.execute()
        self.enter(state, ids)

    def enter(self, state: str, ids: list[str]) -> None:
        key, kind = self.key(state), self.queue.handle.dialect.states[state].kind
        if kind == "list":
            self.client.lpush(key, *ids)
        elif kind == "set":
            self.client.sadd(key, *ids)
        else:
            first = self.client.zcard(key)
            scale = 4096 if state == "delayed" else 1
            self.client.zadd(key, {job_id: (NOW + first + n) * scale for n, job_id in enumerate(ids)})

    def move(self, job_id: str, source: str, target: str) -> None:
        kind = self.queue.handle.dialect.states[source].kind
        remove = {"list": lambda k, i: self.client.lrem(k, 0, i), "set": self.client.srem, "zset": self.client.zrem}
        assert remove[kind](self.key(source), job_id) == 1
        self.enter(target, [job_id])

    def read(self, *states: str, part: Slice | None = None, chunk_size: int = 500) -> list[Job]:
        chunks = read_jobs(self.queue.handle, states, part=part or Slice(), chunk_size=chunk_size)
        return [job for chunk in chunks for job in chunk.jobs(self.queue.name)]
