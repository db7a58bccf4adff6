"""Claimed jobs and their outcomes, as plain data that is sent to Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

#: Which finished jobs to keep: None keeps all, {"count": 0} none, else {"count": jobs, "age": s, "limit": removals}.
Keep = Mapping[str, int] | None
#: The outcome of a job after which a follow-up is added: it has completed, or failed without a further attempt.
On = Literal["success", "failure"]
#: Maximum number of follow-ups of one job.
MAX_FOLLOW_UPS: Final = 250


class ClaimedJob(NamedTuple):
    """A job that a worker has claimed. Texts as they are in Redis, times in ms since 1970.

    `attempts_made` counts the attempts before this one. `deferred_failure`: why the job must fail without being run
    (BullMQ: it stalled too often, or a child failed), else None. `attempts`: the number of attempts allowed, in
    dialects that keep it in the hash (Bull 1) and not in the options. `expire_at`: when the job expires that starts for
    the first time, None: never.
    """

    id: str
    timestamp: int = 0
    data: str = ""
    name: str | None = None
    opts: str = "{}"
    attempts_started: int = 0
    attempts_made: int = 0
    parent_key: str | None = None
    deferred_failure: str | None = None
    stalled_counter: int = 0
    progress: str | None = None
    stacktrace: str | None = None
    priority: int = 0
    attempts: int | None = None
    expire_at: int | None = None


class Failed(NamedTuple):
    """A job without further attempts. `stack`: JSON list of traces for its hash; `attempts`: the number allowed."""

    id: str
    reason: str
    stack: str
    keep: Keep
    attempts: int


class Retried(NamedTuple):
    """A job whose attempt failed and that runs again after `delay` ms. `lifo`: without a delay, it is the next one."""

    id: str
    reason: str
    stack: str
    delay: int
    lifo: bool


class Delayed(NamedTuple):
    """A job whose processor delayed it until `until`, ms since 1970. The attempt doesn't count."""

    id: str
    until: int


class Rested(NamedTuple):
    """A job that its processor gave back; its group rests for `ms`. One in no group is delayed by them instead."""

    id: str
    ms: int


class FollowUp(NamedTuple):
    """A job that is added in the step that settles the job `of`, if that has the outcome `on`.

    queue, base: name of its queue, and the start of the keys of that. job: its properties, by their names in
    EncodedJobs. size: characters of its texts.
    """

    of: str
    on: On
    queue: str
    base: str
    job: Mapping[str, Any]
    size: int


@dataclass
class Outcomes:
    """The outcomes of claimed jobs; a job has one outcome.

    `token`: the token of the jobs' locks; `tokens`: another one, by the id of a job that was claimed with it. Completed
    jobs have a return value (JSON text) and a rule for how many completed jobs to keep. `returned`: jobs that their
    processors gave back; with `limited_ms` > 0 the queue is rate limited for that time. `counted_returns`: the jobs
    of `returned` that limit nothing; Node counts no returns, so those by a rate limit are not counted. `unstarted`:
    jobs that go back in their order, as if they had not been claimed. `waiting_for_children`: jobs that run again when
    their children have ended. `follow_ups`: of all jobs; the ones for another outcome than their job's are not sent.
    `failed_after`: for each failed job, how many had completed before. `size`: number of characters of the texts.
    """

    token: str
    completed_ids: list[str] = field(default_factory=list)
    returnvalues: list[str] = field(default_factory=list)
    keeps: list[Keep] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    failed_after: list[int] = field(default_factory=list)
    retried: list[Retried] = field(default_factory=list)
    delayed: list[Delayed] = field(default_factory=list)
    rested: list[Rested] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    counted_returns: list[str] = field(default_factory=list)
    unstarted: list[str] = field(default_factory=list)
    waiting_for_children: list[str] = field(default_factory=list)
    limited_ms: int = 0
    follow_ups: list[FollowUp] = field(default_factory=list)
    size: int = 0
    tokens: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, (self.completed_ids, *self._postponed_ids, *self._others)))

    @property
    def _others(self) -> tuple[Sequence[Failed | Retried | Delayed | Rested], ...]:
        return self.failed, self.retried, self.delayed, self.rested

    @property
    def _postponed_ids(self) -> tuple[list[str], ...]:
        return self.returned, self.unstarted, self.waiting_for_children

    def all_ids(self) -> set[str]:
        return {*self.completed_ids, *chain(*self._postponed_ids), *(job.id for jobs in self._others for job in jobs)}

    def complete(self, job_id: str, returnvalue: str, keep: Keep = None) -> None:
        """Adds a completed job; `returnvalue` is JSON text."""
        self.completed_ids.append(job_id)
        self.returnvalues.append(returnvalue)
        self.size += len(returnvalue)
        self.keeps.append(keep)

    def complete_all(self, job_ids: Sequence[str], returnvalues: Sequence[str], keeps: Sequence[Keep]) -> None:
        """Adds completed jobs: see `complete`."""
        self.completed_ids += job_ids
        self.returnvalues += returnvalues
        self.size += sum(map(len, returnvalues))
        self.keeps += keeps

    def add_failure(self, job: Failed | Retried) -> None:
        """Adds a job whose attempt failed."""
        self.size += len(job.reason) + len(job.stack)
        if isinstance(job, Failed):
            self.failed.append(job)
            self.failed_after.append(len(self.completed_ids))
        else:
            self.retried.append(job)

    def add_follow_ups(self, follow_ups: Sequence[FollowUp]) -> None:
        """Adds follow-ups of a job."""
        self.follow_ups += follow_ups
        self.size += sum(one.size for one in follow_ups)

    def is_large(self, most_bytes: int) -> bool:
        """Whether the outcomes should be settled before further ones are added, so that no script takes too long."""
        return self.size > most_bytes or len(self.follow_ups) >= MAX_FOLLOW_UPS

    def packable(self) -> dict[str, Any]:
        """The outcomes as the scripts unpack them: texts, numbers, lists and maps; empty parts are left out."""
        same_keep, by_token = _are_equal(self.keeps), dict[str, list[str]]()
        for job_id, token in self.tokens.items():
            by_token.setdefault(token, []).append(job_id)
        parts = {
            "ids": self.completed_ids,
            "values": self.returnvalues[0]
            if self.returnvalues and _are_equal(self.returnvalues)
            else self.returnvalues,
            "keep": self.keeps[0] if self.keeps and same_keep else None,
            "keeps": None if same_keep else [keep or {} for keep in self.keeps],
            "failed": [job._asdict() for job in self.failed],
            "failed_after": self.failed_after,
            "retried": [job._asdict() for job in self.retried],
            "delayed": [job._asdict() for job in self.delayed],
            "rested": [job._asdict() for job in self.rested],
            "returned": self.returned,
            "counted_returns": self.counted_returns,
            "unstarted": self.unstarted,
            "waiting_for_children": self.waiting_for_children,
            "limited_ms": self.limited_ms,
            "follow_ups": self._chunks() if self.follow_ups else None,
            "tokens": by_token,
        }
        given = {name: part for name, part in parts.items() if part or (name == "values" and self.completed_ids)}
        return {"token": self.token} | given

    def _chunks(self) -> list[dict[str, Any]]:
        """The follow-ups that belong to the outcomes of their jobs, as one chunk for each queue."""
        ended: dict[On, set[str]] = {"success": {*self.completed_ids}, "failure": {job.id for job in self.failed}}
        by_base: dict[str, list[FollowUp]] = {}
        for one in self.follow_ups:
            if one.of in ended[one.on]:
                by_base.setdefault(one.base, []).append(one)
        return [
            {
                "base": base,
                "queue": group[0].queue,
                "of": [one.of for one in group],
                "jobs": _chunk([one.job for one in group]),
            }
            for base, group in by_base.items()
        ]


def _are_equal(values: Sequence[object]) -> bool:
    return not values or values.count(values[0]) == len(values)


def _chunk(jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Jobs as a chunk; see EncodedJobs."""
    names = dict.fromkeys(name for job in jobs for name in job)
    columns: dict[str, Any] = {name: [job.get(name) for job in jobs] for name in names}
    return columns | {"n": len(jobs), "marked": any(columns.get("marked", ()))}


class RejectedOutcome(NamedTuple):
    """An outcome that was rejected. `why` is one of LOST."""

    id: str
    why: str

    @property
    def is_blocked(self) -> bool:
        """Whether the job is still claimed, and its children keep it from completing, or from waiting for them."""
        return self.why in ("children", "failed_children")


#: Why an outcome was rejected.
LOST: Final[Mapping[str, str]] = {
    "missing": "the job has been removed",
    "unlocked": "its lock has expired, and another worker may have it",
    "owner": "another worker has it",
    "inactive": "it is no longer active",
    "children": "it has unfinished children",
    "failed_children": "one of its children has failed",
    "damaged": "its key is no longer a hash",
}


class Claim(NamedTuple):
    """The result of a call of `work`: jobs to run, rejected outcomes, and when to claim again.

    `claimed`: number of claimed jobs, whether or not they are in `jobs`. `stop`, `paused`: what the control key says.
    `limited_ms`: remaining time of a rate limit, 0: none. `next_due`: when the next delayed job is due (ms since 1970),
    None when there is none. `more`: more jobs can be claimed now. `now`: time of Redis, ms since 1970. `counted`:
    numbers of jobs by what became of them, as the worker's totals have them.
    """

    token: str
    jobs: list[ClaimedJob]
    lost: list[RejectedOutcome]
    limited_ms: int
    next_due: int | None
    more: bool
    stop: bool
    paused: bool
    now: int
    claimed: int
    counted: Mapping[str, int]
