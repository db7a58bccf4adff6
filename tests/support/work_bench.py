"""A queue whose jobs a test claims and settles itself, as a slot of a worker does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from redis import Redis

from spark_bull.model.jobs import NewJob
from spark_bull.model.outcomes import Claim, Failed, Outcomes
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.process import claim as claims

DIALECTS = ("bull-1", "bull", "bullmq")
CLAIM_SETTINGS = ClaimSettings("slot", lock_ms=3_600_000)

only_bullmq = pytest.mark.parametrize("bench", ["bullmq"], indirect=True)
not_bull_1 = pytest.mark.parametrize("bench", DIALECTS[1:], indirect=True)


@dataclass
class WorkBench:
    """One queue. `twice`: every call of `work` is repeated, as if its reply had been lost."""

    queue: BullQueue
    client: Redis
    twice: bool

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
        claim_settings: ClaimSettings = CLAIM_SETTINGS,
        **more: Any,
    ) -> Claim:
        call = uuid4().hex
        answer = claims.work(self.handle, claim_settings, outcomes, limit, call=call, **more)
        if self.twice:
            again = claims.work(self.handle, claim_settings, outcomes, limit, call=call, **more)
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
        return str(self.handle.keys[name])

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
