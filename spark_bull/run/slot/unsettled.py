"""The jobs of one queue that a slot has claimed and not settled yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Final

from spark_bull.core.errors import UnrecoverableError
from spark_bull.core.model.limits import ClaimSettings
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import parts_to_return, work
from spark_bull.core.queue.work.verbs import stall
from spark_bull.run.claims.lock_keeper import LockKeeper
from spark_bull.run.job.job_runner import Result
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.slot.queue_meter import QueueMeter
from spark_bull.run.slot.slot_plan import SlotPlan

#: Number of jobs of a UDF's chunk that one script claims, settles or returns, so that it does not block Redis for long.
SCRIPT_JOBS: Final = 200
#: Why a job fails whose process ends, and that must not run again.
ENDED: Final = "the process of the worker was ended while the job ran, and the job may run at most once"
#: Why running jobs are returned.
STALLED: Final = "the process of the worker is to end: they have stalled"


class Unsettled:
    """What is known of jobs from their claim until they are settled, and their return when the process is to end."""

    def __init__(
        self,
        handle: QueueHandle,
        plan: SlotPlan,
        claim_settings: ClaimSettings,
        keeper: LockKeeper,
        warn: Callable[[str, object], None],
        meter: QueueMeter | None = None,
    ) -> None:
        self._handle = handle
        self._plan = plan
        # The receipt of the slot may belong to a call that another thread makes.
        self._claim_settings = replace(claim_settings, sender=f"{claim_settings.sender}:end")
        self._keeper = keeper
        self._warn = warn
        self._meter = meter
        #: Ids of the jobs for which the processor was called.
        self.begun: set[str] = set()
        #: Jobs that must never run twice.
        self.only_once: dict[str, RunningJob] = {}
        #: Guards `ended`, and the outcomes that the loop records.
        self.recording = Lock()
        #: Results of jobs that have ended, until the loop records their outcomes; by job id.
        self.ended: dict[str, Result] = {}
        self._recorded: list[Outcomes] = []

    def new_outcomes(self, token: str) -> Outcomes:
        """Returns where the loop is to record outcomes, with `recording` held; return_all() settles them, too."""
        outcomes = Outcomes(token)
        self._recorded.append(outcomes)
        return outcomes

    def forget(self, outcomes: Outcomes, settled: set[str]) -> None:
        """Forgets outcomes that were settled. settled: the ids of their jobs."""
        self.begun -= settled
        for job_id in self.only_once.keys() & settled:
            del self.only_once[job_id]
        self._recorded = [one for one in self._recorded if one is not outcomes]

    def return_all(self, now: int, since: int) -> None:
        """Returns all jobs that are held to the queue; to be called with `recording` held. Raises ConnectionLost.

        Jobs that have ended are settled. Jobs whose function has not been called are as they were before they were
        claimed. Jobs that have begun have stalled; they fail if they must never run twice. now: time of Redis;
        since: time of the first claim; ms since 1970.
        """
        self._record_ended(now)
        held, ended = self._keeper.give_up(), set[str]()
        for recorded in filter(len, self._recorded):
            ended |= recorded.all_ids()
            self._settle(recorded)
        by_token: dict[str, list[str]] = {}
        for job_id, hold in held.items():
            if job_id not in ended:
                by_token.setdefault(hold.token, []).append(job_id)
        stalled = self.begun - self.only_once.keys()
        for token, ids in reversed(by_token.items()):
            others = [job_id for job_id in ids if job_id not in stalled]
            for part in parts_to_return(others, SCRIPT_JOBS):
                self._settle(self._unfinished(token, part, now))
            for part in parts_to_return([job_id for job_id in ids if job_id in stalled], SCRIPT_JOBS):
                self._stall(token, part, since)

    def _record_ended(self, now: int) -> None:
        """Records the outcomes of jobs that have ended, which the loop will not do any more."""
        held, outcomes = self._keeper.held(), dict[str, Outcomes]()
        for job_id, result in self.ended.items():
            if job_id in held and not result.job.lock_lost:
                token = held[job_id].token
                if token not in outcomes:
                    outcomes[token] = self.new_outcomes(token)
                self._plan.policy.record(outcomes[token], self._handle.dialect, result, now)
        self.ended.clear()

    def _unfinished(self, token: str, ids: Sequence[str], now: int) -> Outcomes:
        """The outcomes of jobs that have not begun when the process is to end, or must never run twice."""
        outcomes = Outcomes(token)
        for job_id in ids:
            if job_id in self.begun and job_id in self.only_once:
                result = Result(self.only_once[job_id], None, UnrecoverableError(ENDED))
                self._plan.policy.record(outcomes, self._handle.dialect, result, now)
            else:
                outcomes.unstarted.append(job_id)
        return outcomes

    def _settle(self, outcomes: Outcomes) -> None:
        claim = work(self._handle, self._claim_settings, outcomes, 0)
        if self._meter is not None:
            self._meter.add(outcomes, claim)

    def _stall(self, token: str, ids: Sequence[str], since: int) -> None:
        reply = stall(self._handle, token, ids, max_stalled=self._plan.max_stalled, since=since)
        self._warn(f"running jobs returned to the queue: {len(reply.returned)}, failed: {len(reply.failed)}", STALLED)
