"""Finished jobs for readers of results: some as a worker of ours ends them, some as clocks and histories of others
leave them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spark_bull.outcomes import Claim, Failed, Keep, Outcomes
from spark_bull.queue.handle import CHUNK_SIZE
from spark_bull.queue.result_ledger import EVERYTHING, LOOKED_AT, DiscoverResult, Horizon, ResultChunk, ResultLedger
from tests.support.work_bench import WorkBench, completed

#: Job id and state.
Entry = tuple[str, str]
#: The rule by which a job is removed as it ends.
AT_ONCE: Keep = {"count": 0}


@dataclass
class Finisher(WorkBench):
    """A bench whose jobs end by a worker's clock that is `offset_ms` ahead of Redis' (< 0: behind)."""

    def finish(self, count: int = 1, state: str = "completed", offset_ms: int = 0, **more: Any) -> list[str]:
        """Adds jobs, and ends them; their ids. `more`: see `end`."""
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
        """Claims jobs that wait, and ends them; their ids."""
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
        """Jobs that have finished at these times, ms since 1970, and left no event; their ids."""
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
        """Lets BullMQ's events leave their stream."""
        self.client.xtrim(self.key("events"), maxlen=0, approximate=False)

    def ledger(self, starting: str = "earliest", lookback_ms: int = 60_000, **more: Any) -> ResultLedger:
        """A ledger, open."""
        ledger = ResultLedger(self.handle, "reader", lookback_ms=lookback_ms, owner="me", **more)
        assert ledger.open(starting, create=True) == ("ok", 0, 0, "")
        return ledger


def look(
    ledger: ResultLedger, horizon: Horizon = EVERYTHING, most: int = LOOKED_AT, *, strict: bool = False
) -> DiscoverResult:
    """Discovers until nothing is left to look at; the last answer."""
    while True:
        found = ledger.discover(horizon, most=most, strict=strict)
        assert found.state == "ok"
        if not found.more:
            return found


def column(rows: ResultChunk, name: str) -> list[Any]:
    """The values of a column, one for each row."""
    values = rows.columns[name]
    return values if isinstance(values, list) else [values] * rows.rows


def entries(ledger: ResultLedger, start: int = 0) -> list[Entry]:
    """What the ledger holds from a position on."""
    found: list[Entry] = []
    while True:
        position, rows = ledger.read(start, start + CHUNK_SIZE, [])
        if not rows.rows:
            assert position == start, f"entries {start} to {position} have been cut off"
            return found
        found += zip(*([value.decode() for value in column(rows, name)] for name in ("id", "state")), strict=True)
        start = position


def of(state: str, ids: Iterable[str]) -> list[Entry]:
    """The entries of jobs that have ended in one state."""
    return [(job_id, state) for job_id in ids]
