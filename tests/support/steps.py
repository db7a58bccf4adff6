"""Steps that Node does on one side and we on the other, as data.

    steps.live([step("add", jobs=[...]), step("claim", count=3), step("settle", does=[("complete", 1)], then=2)])

Node uses the methods of the package (a Worker or Queue driven step by step, tests/node/adapters/*_bench.js); we use
the functions of a slot: `claims.work` with the outcomes of `OutcomePolicy`. No step waits: delays are whole hours, the
step `due` makes delayed jobs due, and locks expire by being deleted. A step that makes no sense does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from spark_bull.core.dialects.base import json_text
from spark_bull.core.errors import (
    DelayedError,
    ParentError,
    RateLimitError,
    ReturnedError,
    UnrecoverableError,
    WaitingForChildren,
)
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import ClaimedJob, Outcomes
from spark_bull.core.model.read_jobs import Change, FlowJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.handle.report import add_log, update_data, update_progress
from spark_bull.core.queue.work import claim as claims
from spark_bull.core.queue.work import verbs
from spark_bull.run.job.job_options import job_options
from spark_bull.run.job.job_runner import Result
from spark_bull.run.job.outcome_policy import OutcomePolicy, fail_blocked
from spark_bull.run.job.running_job import RunningJob
from tests.support.jobs import HOUR, Job, new_job_arguments
from tests.support.node import NodeError
from tests.support.two_sides import QUEUES, Answers, TwoSides, is_opts, on_side
from tests.support.writes import register_all

MAIN = QUEUES[0]
#: Keys of a job with the keys of its children.
UNFINISHED_CHILDREN = ("dependencies",)
FINISHED_CHILDREN = ("processed", "failed", "unsuccessful")
#: Maximum number of runs to shorten a failing sequence.
TRIES = 300
CLAIM_SETTINGS = WorkSettings("slot", lock_ms=600_000)
#: Members of claimed jobs.
COUNTERS = {"attemptsMade": "attempts_made", "attemptsStarted": "attempts_started"}


class Step(NamedTuple):
    verb: str
    args: dict[str, Any]

    def __repr__(self) -> str:
        return f"step({', '.join([repr(self.verb), *(f'{name}={value!r}' for name, value in self.args.items())])})"


def step(verb: str, /, **args: Any) -> Step:
    return Step(verb, args)


def _change(queue: BullQueue, change: Change) -> None:
    assert [done.outcome for done in queue.manage([change])] == ["done"]


def _retry(queue: BullQueue, job_id: str, state: str = "failed", resets: Any = None) -> None:
    if resets:
        _change(queue, Change(job_id, "retry", state=state, reset_attempts=True))
    else:
        queue.retry(job_id, state)


#: Methods of Node's jobs, and what we do instead.
JOB_VERBS: dict[str, Callable[..., Any]] = {
    "retry": _retry,
    "promote": BullQueue.promote,
    "remove": BullQueue.remove,
    "removeChildDependency": BullQueue.remove_child_dependency,
    "removeUnprocessedChildren": BullQueue.remove_unprocessed_children,
    "removeDeduplicationKey": lambda queue, job_id: _change(queue, Change(job_id, "free")),
    "clearLogs": BullQueue.clear_logs,
    "changePriority": lambda queue, job_id, given: _change(queue, Change(job_id, "prioritize", **given)),
    "changeDelay": lambda queue, job_id, ms: _change(queue, Change(job_id, "delay", delay=ms)),
    "updateData": lambda queue, job_id, data: _change(queue, Change(job_id, "update", data=data)),
}
#: The same for queues.
QUEUE_VERBS: dict[str, Callable[..., Any]] = {
    "trimEvents": BullQueue.trim_events,
    "removeOrphanedJobs": BullQueue.remove_orphans,
    # Replies of the limits of queues of BullMQ differ.
    "setGlobalConcurrency": lambda queue, concurrency: queue.set_limits(concurrency=concurrency),
    "setGlobalRateLimit": lambda queue, most, ms: queue.set_limits(max=most, duration_ms=ms),
    "removeGlobalConcurrency": lambda queue: queue.remove_limits(rate=False),
    "removeGlobalRateLimit": lambda queue: queue.remove_limits(concurrency=False),
    "rateLimit": BullQueue.rate_limit,
    "removeRateLimitKey": BullQueue.remove_rate_limit,
}


@dataclass
class ClaimedBatch:
    """Jobs that one call claimed on both sides and that are not settled yet."""

    queue: str
    token: str
    #: Each with the token of Node's lock.
    jobs: list[tuple[ClaimedJob, str]]
    is_obliterated: bool = False


class Differs(AssertionError):
    """The two sides differ; the message lists the steps so far and the differences."""


@dataclass
class Steps(TwoSides):
    """A method `_<verb>` for each step, which returns None if it has done nothing."""

    #: Number of steps that did something.
    done: int = 0
    held: list[ClaimedBatch] = field(default_factory=list)

    def live(self, steps: Sequence[Step]) -> None:
        """Does the steps on empty queues. Raises Differs at the first difference."""
        self.begin()
        self.held, self._numbers = [], count(1)
        lived = []
        for one in steps:
            answers = getattr(self, f"_{one.verb}")(**one.args)
            if answers is None:
                continue
            self.done += 1
            lived.append(f"  {len(lived) + 1}. {_short(repr(one))}  ->  {_short(json.dumps(answers.left))}")
            if found := self.differences(answers):
                again = [f"    {one!r}," for one in steps]
                raise Differs("\n".join([f"{self.peer}:", *lived, *found[:40], "as steps:", *again]))

    def shortest(self, life: Sequence[Step], apart: Differs) -> Differs:
        """The failing sequence without the steps that it does not need, found with at most TRIES runs."""
        rest, size, tries = list(life), len(life) // 2, 0
        while size:
            first = 0
            while first < len(rest) and tries < TRIES:
                without, tries = rest[:first] + rest[first + size :], tries + 1
                try:
                    self.live(without)
                    first += size
                except Differs as still:
                    rest, apart = without, still
            size //= 2
        return apart

    # adding

    def _add(self, jobs: list[Job], queue: str = MAIN) -> Answers:
        new_jobs = self._new_jobs(jobs)
        return self.both(
            lambda: self.node("add", queue=queue, jobs=jobs), lambda: self.ours[queue].add_many(new_jobs).ids
        )

    def _stage(self, jobs: list[Job]) -> Answers:
        """As `add`, but we do it as an exactly-once write of Spark: two tasks stage chunks, the driver commits them."""
        new_jobs, half, handle = self._new_jobs(jobs), len(jobs) // 2, self.ours[MAIN].handle
        self.node("add", queue=MAIN, jobs=jobs)
        assert register_all(handle, "w", [new_jobs[:half], new_jobs[half:]], chunk_size=40)
        record = roll_forward(handle, "w")
        assert record.added + record.duplicates == len(jobs)
        return Answers()

    def _new_jobs(self, jobs: list[Job]) -> list[NewJob]:
        unnamed = {"name": None} if self.peer.dialect == "bull-1" else {}
        return [NewJob(**new_job_arguments(job | unnamed)) for job in jobs]

    def _add_children(self, jobs: list[Job], queue: str) -> Answers:
        """Node adds jobs one by one, we together; the first one that is refused must be the same."""
        refused: list[tuple[int, bool]] = []
        for position, job in enumerate(jobs):
            try:
                self.node("add", queue=queue, jobs=[job])
            except NodeError as error:
                refused.append((position, "Missing key for parent job" in str(error)))
        try:
            self.ours[queue].add_many([NewJob(**job) for job in on_side(jobs, self.prefixes[1])])
            ours = None
        except ParentError as error:
            ours = str(error).partition("expected")[0], "another parent" not in str(error)
        named = "job {}: " if len(jobs) > 1 else ""
        return Answers((named.format(refused[0][0]), refused[0][1]) if refused else None, ours)

    def _flows(self, flows: list[dict[str, Any]]) -> Answers:
        self.node("flows", flows=flows)
        self.ours[MAIN].add_flows([_flow_job(flow) for flow in on_side(flows, self.prefixes[1])])
        return Answers()

    def _flow(self, flow: dict[str, Any]) -> Answers:
        return self.by_node("flow", flow=flow)

    # processing

    def _claim(self, count: int, queue: str = MAIN) -> Answers:
        token = self._token()
        if self._is_limited(queue):
            count = 1
        claim = claims.work(self.ours[queue].handle, CLAIM_SETTINGS, None, count, token=token)
        left = self.node("claim", queue=queue, count=self._count_for_node(queue, claim.jobs, count), token=token)
        return Answers(*self._claimed(queue, token, left, claim.jobs))

    def _count_for_node(self, queue: str, jobs: list[ClaimedJob], count: int) -> int:
        """How many jobs Node is to claim: our claim ends before a job whose child it has claimed."""
        handle = self.ours[queue].handle
        following = handle.connection.call("LRANGE", handle.keys["wait"], -1, -1)
        if not following and self.bullmq:
            following = handle.connection.call("ZRANGE", handle.keys["prioritized"], 0, 0)
        parents = {job.parent_key for job in jobs}
        return len(jobs) if any(handle.keys.job(one.decode()) in parents for one in following) else count

    def _claimed(self, queue: str, token: str, left: list[Any], jobs: list[ClaimedJob]) -> tuple[Any, Any]:
        """Records the claimed jobs; returns the fields that both sides see."""
        tokens = {job["id"]: job["token"] for job in left}
        self.held.append(ClaimedBatch(queue, token, [(job, tokens.get(job.id, token)) for job in jobs]))
        # BullMQ counts the claim itself as a start.
        counters = dict(list(COUNTERS.items())[: 2 if self.bullmq else 1])
        seen = [{name: job[name] for name in counters} | {"id": job["id"]} for job in left]
        return seen, [{name: getattr(job, ours) for name, ours in counters.items()} | {"id": job.id} for job in jobs]

    def _token(self) -> str:
        return f"t{next(self._numbers)}"

    def _settle(self, does: list[tuple[str, Any]], claim: int = 0, then: int = 0) -> Answers | None:
        """`does`: the outcomes of the next jobs of a claim; `then`: number of jobs to claim in the same call."""
        self.held = [held for held in self.held if held.jobs]
        if not self.held:
            return None
        held = self.held[claim % len(self.held)]
        if held.is_obliterated and not self.bullmq:
            # Bull stores a failed attempt before it examines the lock: in the hash of a new job with the same id.
            held.jobs = [one for one in held.jobs if not self.has(f"{held.queue}:{one[0].id}")]
            if not held.jobs:
                return None
        limiting = [job.id for (job, _), (kind, _) in zip(held.jobs, does, strict=False) if kind == "limit"]
        if not all(self._holds(held, job) for job in limiting):
            # Node's processor limits the rate of the queue before it ends, also if it has lost its job.
            return None
        # A parent with unfinished children fails in a separate call.
        blocked = [self._is_blocked(held.queue, job.id) for job, _ in held.jobs[: len(does)]]
        if any(blocked):
            does, then = does[: max(1, blocked.index(True))], 0
        if any(kind == "wait for children" for kind, _ in does):
            # Jobs without children are returned: one per call, as calls return the last one first.
            does, then = does[:1], 0
        if self._is_limited(held.queue) or any(kind == "limit" for kind, _ in does):
            then = 0
        jobs, held.jobs = held.jobs[: len(does)], held.jobs[len(does) :]
        handle, token = self.ours[held.queue].handle, self._token()
        now = handle.connection.now_ms()
        outcomes = Outcomes(held.token)
        done = {}
        for (job, node_token), (kind, given) in zip(jobs, does, strict=False):
            value = now + given if kind == "delay" else given
            done[job.id] = {"jobId": job.id, "token": node_token, "does": kind, "value": value}
            _note(outcomes, RunningJob(job, handle), kind, value, now)
        order = _settled_in_order(outcomes)
        claim_of_ours = claims.work(handle, CLAIM_SETTINGS, outcomes, then, token=token)
        then = self._count_for_node(held.queue, claim_of_ours.jobs, then)
        left = self.node("settle", queue=held.queue, outcomes=[done[i] for i in order], count=then, token=token)
        failed = fail_blocked(handle, OutcomePolicy(), outcomes, claim_of_ours.lost, now)
        if len(failed):
            claims.work(handle, CLAIM_SETTINGS, failed, 0)
        # Node's worker keeps the rate limit of a processor in memory, where the adapter resets it.
        self.client.delete(handle.keys["rate_limited"])
        delays_unmarked = bool(left) and any(job.delay and job.id == order[-1] for job in outcomes.retried)
        answers = self._claimed(held.queue, token, left, claim_of_ours.jobs)
        return Answers(*answers, delays_unmarked=delays_unmarked)

    def _holds(self, held: ClaimedBatch, job: str) -> bool:
        """Whether the claim still has the lock of a job."""
        handle = self.ours[held.queue].handle
        return handle.connection.call("GET", handle.keys.lock(job)) == held.token.encode()

    def _is_limited(self, queue: str) -> bool:
        """Whether the queue has a rate limit: jobs that fail without being run count for our call, not for Node's."""
        return "max" in self.key(f"{queue}:meta")

    def _is_blocked(self, queue: str, job_id: str) -> bool:
        """Whether a job cannot complete because of its children."""
        return any(self.has(f"{queue}:{job_id}:{keys}") for keys in ("dependencies", "unsuccessful"))

    def _work(self, jobs: list[Job], failures: int = 0) -> None:
        """Workers of Node process these jobs on both sides, one after the other."""
        for node in self.nodes:
            before = {event: len(node.events(event, source="worker")) for event in ("completed", "failed")}
            node.call("add", queue=MAIN, jobs=jobs)
            node.call("process", queue=MAIN)
            node.wait_for_events("completed", before["completed"] + len(jobs) - failures, source="worker")
            node.wait_for_events("failed", before["failed"] + failures, source="worker")
            node.call("stop", queue=MAIN)
        self._look()
        self._go_on()
        self._messages()

    def _report(self, what: str, value: Any, job: int, queue: str = MAIN) -> Answers | None:
        """Updates progress, logs or data of an existing job."""
        if not (job_id := self._pick(queue, "any", job)):
            return None
        handle = self.ours[queue].handle
        if what == "progress":
            method = "updateProgress" if self.bullmq else "progress"
            update_progress(handle, job_id, json_text("progress", value))
        elif what == "log":
            method, value = "log", str(value)
            add_log(handle, job_id, value, job_options(self._field(queue, job_id, "opts")).log_limit)
        else:
            method = "updateData" if self.bullmq else "update"
            update_data(handle, job_id, json_text("data", value))
        self.node("invoke", queue=queue, jobId=job_id, method=method, args=[value])
        return Answers()

    def _pick(self, queue: str, state: str, job: int) -> str | None:
        ids = self.ids(queue, state)
        return ids[job % len(ids)] if ids else None

    def _field(self, queue: str, job_id: str, name: str) -> str:
        return str(self.key(f"{queue}:{job_id}").get(name, ""))

    # locks and time

    def _expire(self, job: int, queue: str = MAIN) -> Answers | None:
        """The lock of an active job expires, as if its worker had died; one at a time, since `stalled` has no order."""
        ids = self.ids(queue, "active")
        if not ids or not all(self.has(f"{queue}:{job_id}:lock") for job_id in ids):
            return None
        job_id = ids[job % len(ids)]
        if not self.bullmq:
            # Bull uses one token for all jobs, so a worker that lost a lock could settle with the next one.
            for held in self.held:
                held.jobs = [(job, token) for job, token in held.jobs if job.id != job_id]
        return self._redis(["DEL", f"{queue}:{job_id}:lock"])

    def _rescue(self, queue: str = MAIN) -> Answers | None:
        if not self.ids(queue, "active"):
            # We write `stalled-check` only if jobs are active.
            return None
        self._redis(["DEL", f"{queue}:stalled-check"])
        self.node("rescue", queue=queue)
        claims.rescue(self.ours[queue].handle)
        # Bull 3 does not note when a job has failed that stalled too often.
        for failed in self.ours[queue].page("failed") if self.peer.alias.startswith("bull-3") else ():
            self._redis(["HDEL", f"{queue}:{failed.id}", "finishedOn"])
        return Answers()

    def _redis(self, command: Sequence[Any]) -> Answers:
        """A command of Redis on both sides; its first argument is a key without the prefix."""
        name, key, *args = command
        for prefix in self.prefixes:
            self.client.execute_command(name, f"{prefix}:{key}", *args)
        return Answers()

    def _lose(self, state: str, job: int, queue: str = MAIN) -> Answers | None:
        """Deletes the hash of a job, but not its id."""
        job_id = self._pick(queue, state, job)
        return self._redis(["DEL", f"{queue}:{job_id}"]) if job_id else None

    def _due(self, count: int, queue: str = MAIN) -> Answers | None:
        """Makes the first delayed jobs due."""
        ids = self.ids(queue, "delayed")[:count]
        for number, job_id in enumerate(ids, 1000):
            self._redis(["ZADD", f"{queue}:delayed", "XX", number * 4096, job_id])
        return Answers() if ids else None

    def _promote_due(self, queue: str = MAIN) -> Answers | None:
        """BullMQ promotes when a worker claims, so this step claims one job afterwards."""
        if self.bullmq:
            verbs.promote_due(self.ours[queue].handle)
            # We write the time of the next delayed job to the marker; Node's workers read it themselves.
            self.client.zrem(f"{self.prefixes[1]}:{queue}:marker", "1")
            return self._claim(1, queue)
        if not any(score < HOUR * 4096 for _, score in self.key(f"{queue}:delayed")):
            return None
        self.node("promoteDue", queue=queue)
        verbs.promote_due(self.ours[queue].handle)
        return Answers()

    # managing

    def _manage(self, verb: str, state: str, job: int, queue: str = MAIN, args: Sequence[Any] = ()) -> Answers | None:
        """A method of one job of a state."""
        if verb == "retry" and state != "failed" and not self.bullmq:
            # Bull refuses, but has already deleted `processedOn`.
            return None
        if not (job_id := self._pick(queue, state, job)):
            return None
        if verb == "remove" and self._is_endless(f"{queue}:{job_id}"):
            # Node refuses: its search does not end.
            return None
        if verb == "removeUnprocessedChildren" and self._has_cycle(f"{queue}:{job_id}"):
            # Jobs are removed in another order: the events show it.
            return None
        method = "update" if verb == "updateData" and not self.bullmq else verb
        # A job that cannot be read is removed by its id.
        wanted = {"jobId": job_id} if self.has(f"{queue}:{job_id}") else {"args": [job_id]}
        done = self.both(
            lambda: self.node("invoke", queue=queue, method=method, **{"args": list(args), **wanted}),
            lambda: JOB_VERBS[verb](self.ours[queue], job_id, *args),
            releases=verb in ("remove", "removeUnprocessedChildren"),
        )
        if verb == "removeChildDependency":
            return done
        return done._replace(left=done.left == "refused", right=done.right == "refused")

    def _call(self, method: str, args: Sequence[Any] = (), queue: str = MAIN) -> Answers:
        left = self.node("invoke", queue=queue, method=method, args=list(args))
        right = QUEUE_VERBS[method](self.ours[queue], *args)
        return Answers() if "Limit" in method or "Concurrency" in method else Answers(left, right)

    def _page(self, state: str, start: int, stop: int, queue: str = MAIN) -> Answers:
        jobs = self.node("getJobs", queue=queue, states=[state], start=start, end=stop, asc=True)
        page = self.ours[queue].page(state, start, stop)
        return Answers([job["id"] for job in jobs], [job.id for job in page])

    def _children(self, job: str, kinds: tuple[str, ...]) -> list[str]:
        """The children of a job, `<queue>:<id>`, in these keys of it."""
        members = [member for kind in kinds for member in self.key(f"{job}:{kind}")]
        # A member of a sorted set comes with its score.
        return [(one if isinstance(one, str) else one[0]).partition(":")[2] for one in members]

    def _has_cycle(
        self, job: str, kinds: tuple[str, ...] = UNFINISHED_CHILDREN, descendants_of: tuple[str, ...] = ()
    ) -> bool:
        """Whether a job, `<queue>:<id>`, or one of its descendants is its own descendant."""
        path = (*descendants_of, job)
        return any(child in path or self._has_cycle(child, kinds, path) for child in self._children(job, kinds))

    def _is_endless(self, job: str) -> bool:
        """Whether Node's removal of a job, `<queue>:<id>`, would visit it or a descendant again and again."""
        family = [job]
        for member in family:
            family += {*self._children(member, UNFINISHED_CHILDREN + FINISHED_CHILDREN)} - {*family}
        return self._has_cycle(job) or any(self._has_cycle(member, FINISHED_CHILDREN) for member in family)

    def _clean(self, state: str, limit: int, grace: int = 0, queue: str = MAIN) -> Answers | None:
        if not self.bullmq and (state == "prioritized" or (state == "delayed" and limit)):
            # With a limit, Bull compares the scores of delayed jobs as times, and finds none.
            return None
        if self.bullmq and state == "active" and limit:
            # Node examines `limit` jobs at a time, and ends when all of them are locked.
            return None
        return self.both(
            lambda: sorted(map(str, self.node("clean", queue=queue, grace=grace, state=state, limit=limit))),
            lambda: sorted(self.ours[queue].clean(grace, limit, state)),
            # Bull 1.0 publishes nothing, 1.1 lists the newest id first.
            unheard=("cleaned",) if self.peer.dialect == "bull-1" else (),
            releases=True,
        )

    def _drain(self, delayed: bool, queue: str = MAIN) -> Answers | None:
        if not self.bullmq and any(is_opts(key) and "deid" in key.value for key in self.raw[0].values()):
            # Bull keeps the debounce ids of drained jobs.
            return None
        # Bull keeps the hashes of delayed jobs and the logs of all, and ends a pause.
        states = () if self.bullmq else ("wait", "paused", "delayed")
        drained = [job_id for state in states for job_id in self.ids(queue, state)]
        stays_paused = not self.bullmq and self.is_paused(queue)
        self.node("empty", queue=queue, **({"delayed": delayed} if self.bullmq else {}))
        self.ours[queue].drain(delayed=delayed or not self.bullmq)
        for job_id in drained:
            self.client.delete(*(f"{self.prefixes[0]}:{queue}:{job_id}{end}" for end in ("", ":logs")))
        if stays_paused:
            self.client.set(f"{self.prefixes[0]}:{queue}:meta-paused", 1)
        return Answers(releases=True)

    def _obliterate(self, force: bool, queue: str = MAIN) -> Answers | None:
        if not force and self.ids(queue, "active"):
            # Node refuses, but has already paused the queue.
            return None
        done = self.both(
            lambda: self.node("obliterate", queue=queue, force=force),
            lambda: self.ours[queue].obliterate(force=force),
            # Node publishes `paused` again for a paused queue.
            unheard=("paused",) if self.is_paused(queue) else (),
            releases=True,
        )
        for held in self.held:
            held.is_obliterated = held.is_obliterated or held.queue == queue
        # Node keeps the counter of the rate limit, which expires.
        self.client.delete(f"{self.prefixes[0]}:{queue}:limiter")
        if not self.bullmq:
            # Bull keeps the debounce ids of obliterated jobs. Ids of jobs that were removed before stay on both sides.
            for name, key in self.raw[0].items():
                if name.startswith(f"{queue}:") and key.type == "hash" and "deid" in key.value:
                    self.client.delete(f"{self.prefixes[0]}:{queue}:de:{key.value['deid']}")
        return done

    def _pause(self, queue: str = MAIN) -> Answers:
        self.node("pause", queue=queue)
        self.ours[queue].pause()
        return Answers()

    def _resume(self, queue: str = MAIN) -> Answers:
        wakes_none = not self.is_paused(queue) and self.peer.alias.startswith("bullmq-5")
        self.node("resume", queue=queue)
        self.ours[queue].resume()
        return Answers(wakes_none=wakes_none)


def _flow_job(node: dict[str, Any]) -> FlowJob:
    children = [_flow_job(child) for child in node.get("children", ())]
    return FlowJob(node["data"], node["name"], queue=node["queueName"], opts=node["opts"], children=children)


def _note(outcomes: Outcomes, job: RunningJob, kind: str, value: Any, now: int) -> None:
    """Records the outcome of a job as a slot does."""
    error: Exception | None = None
    if job.claimed.deferred_failure is not None:
        error = UnrecoverableError(job.claimed.deferred_failure)
    elif kind == "return":
        error = ReturnedError()
    elif kind == "wait for children":
        error = WaitingForChildren()
    elif kind != "complete":
        error = {
            "fail": RuntimeError,
            "give up": UnrecoverableError,
            "delay": lambda until: DelayedError(until=until),
            "limit": RateLimitError,
        }[kind](value)
    OutcomePolicy().record(outcomes, job.handle.dialect, Result(job, None if error else value, error), now)


def _settled_in_order(outcomes: Outcomes) -> list[str]:
    """The order in which the scripts settle a chunk: Node's worker settles one by one, in this order."""
    others = [job.id for jobs in (outcomes.failed, outcomes.retried, outcomes.delayed) for job in jobs]
    return [*outcomes.completed_ids, *others, *outcomes.waiting_for_children, *reversed(outcomes.returned)]


def _short(text: str) -> str:
    return text if len(text) < 300 else text[:300] + "…"
