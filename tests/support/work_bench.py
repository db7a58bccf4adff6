"""Queues whose jobs a test claims, settles, finishes or makes itself: the fixtures bench and filled."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from redis import Redis

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Claim, Failed, Keep, Outcomes
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.collect.result_ledger import LOOKED_AT, ResultLedger
from spark_bull.core.queue.collect.result_rows import ResultChunk
from spark_bull.core.queue.collect.verbs import EVERYTHING, DiscoverResult, Horizon
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.handle.walk import Slice
from spark_bull.core.queue.jobs.read import read_jobs
from spark_bull.core.queue.work import claim as claims
from tests.support.dump import PRIVATE, dump

DIALECTS = ("bull-1", "bull", "bullmq")
#: Options of a queue of each dialect, and for BullMQ of each major version.
FLAVOURS = {
    "bull-1": {"protocol": "bull-1"},
    "bull": {"protocol": "bull"},
    "bullmq-5": {"protocol": "bullmq", "bullmq_version": "5"},
    "bullmq-6": {"protocol": "bullmq", "bullmq_version": "6"},
}
CLAIM_SETTINGS = WorkSettings("slot", lock_ms=3_600_000)

only_bullmq = pytest.mark.parametrize("bench", ["bullmq"], indirect=True)
each_dialect = pytest.mark.parametrize("queue", DIALECTS, indirect=True)
each_dialect_by_name = pytest.mark.parametrize("dialect", DIALECTS, indirect=True)
not_bull_1 = pytest.mark.parametrize("bench", DIALECTS[1:], indirect=True)


def options_of(queue: BullQueue) -> dict[str, str]:
    """The options by which the data source reaches a queue."""
    keys, url = queue.handle.keys, str(queue.handle.connection.settings.url)
    return {"url": url, "prefix": keys.prefix, "queue": keys.queue, "protocol": queue.protocol}


@dataclass
class WorkBench:
    """One queue. `twice`: every call of `work` is repeated, as if its reply had been lost."""

    queue: BullQueue
    client: Redis
    twice: bool = False

    @property
    def handle(self) -> QueueHandle:
        return self.queue.handle

    @property
    def bullmq(self) -> bool:
        return self.queue.protocol == "bullmq"

    def add(self, count: int = 1, **properties: Any) -> list[str]:
        return self.queue.add_many([NewJob({"n": n}, **properties) for n in range(count)]).ids

    def work(
        self,
        outcomes: Outcomes | None = None,
        limit: int = 0,
        work_settings: WorkSettings = CLAIM_SETTINGS,
        **more: Any,
    ) -> Claim:
        call = uuid4().hex
        answer = claims.work(self.handle, work_settings, outcomes, limit, call=call, **more)
        if self.twice:
            again = claims.work(self.handle, work_settings, outcomes, limit, call=call, **more)
            assert (again.jobs, again.lost, again.claimed) == (answer.jobs, answer.lost, answer.claimed)
        return answer

    def claim(self, limit: int = 10, **more: Any) -> Claim:
        return self.work(None, limit, **more)

    def counts(self) -> dict[str, int]:
        return {state: count for state, count in self.queue.counts().items() if count}

    def field(self, job_id: str, *names: str) -> str | None:
        for name in names:
            value = self.client.hget(self.handle.keys.job(job_id), name)
            if value is not None:
                return str(value.decode())
        return None

    def key(self, name: str) -> str:
        """The key of a state, or of another part of the queue."""
        return str(self.handle.keys[name.replace("-", "_")])

    def ids(self, state: str) -> list[str]:
        """Ids of a state: of a list in the order of processing, of a sorted set by their scores."""
        found: list[Any]
        match self.handle.dialect.states[state].kind:
            case "list":
                found = self.client.lrange(self.key(state), 0, -1)[::-1]
            case "zset":
                found = self.client.zrange(self.key(state), 0, -1)
            case _:
                found = sorted(self.client.smembers(self.key(state)))
        return [job_id.decode() for job_id in found]

    def public(self) -> dict[str, Any]:
        """The values of all keys that Node libraries know."""
        whole = dump(self.client, self.handle.keys.prefix, self.queue.name)
        return {name: key.value for name, key in whole.items() if not name.startswith(PRIVATE)}

    def private(self) -> dict[str, bool]:
        """The names of all other keys, and whether they expire."""
        whole = dump(self.client, self.handle.keys.prefix, self.queue.name)
        return {name: key.expires for name, key in whole.items() if name.startswith(PRIVATE)}

    def locks(self, ids: list[str]) -> list[bool]:
        return [bool(self.client.exists(self.handle.keys.lock(job_id))) for job_id in ids]


def completed(claim: Claim, value: str = "1", **keep: int) -> Outcomes:
    outcomes = Outcomes(claim.token)
    for job in claim.jobs:
        outcomes.complete(job.id, value, keep or None)
    return outcomes


def failed_for(claim: Claim, reason: str) -> Outcomes:
    """All jobs of a claim, failed for good."""
    return Outcomes(claim.token, failed=[Failed(job.id, reason, '["trace"]', None, 1) for job in claim.jobs])


def rescue_all(handle: QueueHandle, lost: Iterable[str] = (), max_stalled: int = 9) -> None:
    """Moves active jobs without a lock back, or fails them. lost: jobs whose locks are deleted first."""
    for job_id in lost:
        handle.connection.call("DEL", handle.keys.lock(job_id))
    # The first check only marks them.
    for _ in range(2):
        handle.connection.call("DEL", handle.keys["stalled_check"], handle.keys["rescue_check"])
        claims.rescue(handle, max_stalled=max_stalled)


NOW = 1_700_000_000_000


@dataclass
class Filled(WorkBench):
    """A queue whose keys the test fills itself, as a Node library of that dialect would."""

    @property
    def states(self) -> list[str]:
        return list(self.handle.dialect.states)

    def put(self, state: str, ids: list[str], at: int = NOW, **fields: str | bytes | int) -> None:
        """Creates jobs in a state; `at` is when the first was added, and has finished or is due."""
        hashes = self.client.pipeline(transaction=False)
        for job_id in ids:
            given = {"name": "n", "data": json.dumps({"id": job_id}), "opts": "{}", "timestamp": at, **fields}
            hashes.hset(self.handle.keys.job(job_id), mapping=given)
        hashes.execute()
        self.enter(state, ids, at)

    def enter(self, state: str, ids: list[str], at: int = NOW) -> None:
        key, kind = self.key(state), self.handle.dialect.states[state].kind
        if kind == "list":
            self.client.lpush(key, *ids)
        elif kind == "set":
            self.client.sadd(key, *ids)
        else:
            first = self.client.zcard(key)
            scale = 4096 if state == "delayed" else 1
            self.client.zadd(key, {job_id: (at + first + n) * scale for n, job_id in enumerate(ids)})

    def move(self, job_id: str, source: str, target: str) -> None:
        kind = self.handle.dialect.states[source].kind
        remove = {"list": lambda k, i: self.client.lrem(k, 0, i), "set": self.client.srem, "zset": self.client.zrem}
        assert remove[kind](self.key(source), job_id) == 1
        self.enter(target, [job_id])

    def read(self, *states: str, part: Slice | None = None, chunk_size: int = 500) -> list[Job]:
        chunks = read_jobs(self.handle, states, part=part or Slice(), chunk_size=chunk_size)
        return [job for chunk in chunks for job in chunk.jobs(self.queue.name)]


#: Job id and state.
Entry = tuple[str, str]
#: The retention rule that removes a job when it finishes.
AT_ONCE: Keep = {"count": 0}


@dataclass
class Finisher(WorkBench):
    """A bench that finishes jobs; `offset_ms` is the clock skew of the worker (< 0: slow)."""

    def finish(self, count: int = 1, state: str = "completed", offset_ms: int = 0, **more: Any) -> list[str]:
        """Adds and finishes jobs; returns their ids. `more`: see `end`."""
        self.add(count)
        return self.end(state, offset_ms, limit=count, **more)

    def end(
        self,
        state: str,
        offset_ms: int = 0,
        *,
        limit: int = 1000,
        value: str = "1",
        reason: str = "bad",
        keep: Keep = None,
    ) -> list[str]:
        """Claims and finishes waiting jobs; returns their ids."""
        claim = self.claim(limit)
        assert self.work(self._outcomes(claim, state, value, reason, keep)).lost == []
        ids = [job.id for job in claim.jobs]
        if offset_ms and self.handle.dialect.name != "bull-1":
            for job_id in ids:
                score = self.score(state, job_id)
                if score is not None:
                    self.stamp(state, job_id, score + offset_ms)
        return ids

    def _outcomes(self, claim: Claim, state: str, value: str, reason: str, keep: Keep) -> Outcomes:
        if state == "completed":
            return completed(claim, value, **(keep or {}))
        failed = [Failed(job.id, reason, '["Error"]', keep, job.attempts_made + 1) for job in claim.jobs]
        return Outcomes(claim.token, failed=failed)

    def score(self, state: str, job_id: str) -> int | None:
        score = self.client.zscore(self.key(state), job_id)
        return None if score is None else int(score)

    def stamp(self, state: str, job_id: str, ms: int) -> None:
        """Sets the time at which a finished job has finished, ms since 1970."""
        self.client.zadd(self.key(state), {job_id: ms})
        self.client.hset(self.handle.keys.job(job_id), "finishedOn", ms)

    def crowd(self, times: Sequence[int], state: str = "completed") -> list[str]:
        """Creates jobs that have finished at these times, ms since 1970, without events; returns their ids."""
        ids = [f"crowd-{state}-{n}" for n in range(len(times))]
        pipeline = self.client.pipeline(transaction=False)
        for job_id, ms in zip(ids, times, strict=True):
            fields = {"name": "n", "data": "{}", "opts": "{}", "timestamp": ms}
            if self.handle.dialect.name == "bull-1":
                pipeline.sadd(self.key(state), job_id)
            else:
                pipeline.zadd(self.key(state), {job_id: ms})
                fields["finishedOn"] = ms
            pipeline.hset(self.handle.keys.job(job_id), mapping=fields)
        pipeline.execute()
        return ids

    def forget_events(self) -> None:
        self.client.xtrim(self.key("events"), maxlen=0, approximate=False)

    def ledger(self, starting: str = "earliest", lookback_ms: int = 60_000, **more: Any) -> ResultLedger:
        ledger = ResultLedger(self.handle, "reader", lookback_ms=lookback_ms, owner="me", **more)
        assert ledger.open(starting, create=True) == ("ok", 0, 0, "")
        return ledger


def discover_all(
    ledger: ResultLedger, horizon: Horizon = EVERYTHING, most: int = LOOKED_AT, *, strict: bool = False
) -> DiscoverResult:
    """Discovers until the scan is complete; returns the last reply."""
    while True:
        found = ledger.discover(horizon, most=most, strict=strict)
        assert found.state == "ok"
        if not found.more:
            return found


def column(rows: ResultChunk, name: str) -> list[Any]:
    return rows.columns[name]


def entries(ledger: ResultLedger, start: int = 0) -> list[Entry]:
    """The entries of the ledger from a position on."""
    found: list[Entry] = []
    of_jobs = ledger.rows([])
    while True:
        position, rows = of_jobs.read(start, start + CHUNK_SIZE)
        if not rows.rows:
            assert position == start, f"entries {start} to {position} have been cut off"
            return found
        found += zip(*([value.decode() for value in column(rows, name)] for name in ("id", "state")), strict=True)
        start = position


def of(state: str, ids: Iterable[str]) -> list[Entry]:
    """The entries of jobs that have finished in a state."""
    return [(job_id, state) for job_id in ids]
