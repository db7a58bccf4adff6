"""Finished jobs for readers of results: settled by us, or written with other times, as by other workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spark_bull.model.outcomes import Claim, Failed, Keep, Outcomes
from spark_bull.queue.collect.result_ledger import LOOKED_AT, ResultLedger
from spark_bull.queue.collect.result_rows import ResultChunk
from spark_bull.queue.core.discovery import EVERYTHING, DiscoverResult, Horizon
from spark_bull.queue.core.handle import CHUNK_SIZE
from tests.support.work_bench import WorkBench, completed

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
        """Trims all events of BullMQ."""
        self.client.xtrim(self.key("events"), maxlen=0, approximate=False)

    def ledger(self, starting: str = "earliest", lookback_ms: int = 60_000, **more: Any) -> ResultLedger:
        """An open ledger."""
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
    """The values of a column, one per row."""
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
