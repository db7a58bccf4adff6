"""Sequences of steps, done by Node in one queue and by us in another one, which must be equal after each step.

    lives.live([step("add", jobs=[...]), step("claim", count=3), step("settle", does=[("complete", 1)], then=2)])

The replies, all keys of both queues and the published messages are compared. Node uses the methods of the package (a
Worker or Queue driven step by step, tests/node/adapters/*_bench.js); we use those of a slot: `claims.work` with the
outcomes of `OutcomePolicy`. No step waits: delays are whole hours, the step `due` makes delayed jobs due,
and locks expire by being deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from redis import Redis

from spark_bull.dialects.base import json_text
from spark_bull.errors import (
    DelayedError,
    RateLimitError,
    ReturnedError,
    SparkBullError,
    UnrecoverableError,
    WaitingForChildren,
)
from spark_bull.model.jobs import NewJob
from spark_bull.model.outcomes import ClaimedJob, Outcomes
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.core.report import add_log, update_data, update_progress
from spark_bull.queue.process import claim as claims
from spark_bull.queue.process import service_verbs
from spark_bull.worker.job.job_options import job_options
from spark_bull.worker.job.job_runner import Result
from spark_bull.worker.job.outcome_policy import OutcomePolicy
from spark_bull.worker.job.running_job import RunningJob
from spark_bull.worker.slot.blocked_parents import fail_blocked
from tests.support.dump import Dump, Moments, Window, difference, dump, normalise, normalise_messages
from tests.support.jobs import HOUR, Job, new_job_arguments
from tests.support.node_peer import NodeError, NodePeer
from tests.support.peers import Peer
from tests.support.wait import PATIENCE_S, wait_until

#: Keys of a job with the keys of its children.
UNFINISHED_CHILDREN = ("dependencies",)
FINISHED_CHILDREN = ("processed", "failed", "unsuccessful")
#: Queues of each side; children of flows may be in the other one.
QUEUES = ("main", "other")
#: Maximum distance of a time from the whole hour after which it is named.
SLACK = 20 * 60_000
LOCK_MS = 600_000
#: Maximum number of runs to shorten a failing sequence.
TRIES = 300
PREFIXES = ("left", "ours")
CLAIM_SETTINGS = ClaimSettings("slot", lock_ms=LOCK_MS)


class Step(NamedTuple):
    verb: str
    args: dict[str, Any]

    def __repr__(self) -> str:
        return f"step({', '.join([repr(self.verb), *(f'{name}={value!r}' for name, value in self.args.items())])})"


def step(verb: str, /, **args: Any) -> Step:
    return Step(verb, args)


class Hours(Moments):
    """Names times as whole hours from the start of the test, which takes much less than an hour."""

    def name(self, moment: float | str) -> Any:
        try:
            number = float(moment)
        except (TypeError, ValueError):
            return moment
        for start, said in ((self.window.start, "now"), (0, "")):
            hours, rest = divmod(number - start + SLACK, HOUR)
            if rest < 2 * SLACK and abs(hours) < 1000 and (start or hours > 0):
                return f"<{said} + {hours:.0f} h>"
        return moment

    def delayed(self, score: float) -> Any:
        return self.name(score // 4096)


class Answers(NamedTuple):
    """The description of a step, and the replies of both sides."""

    said: str
    left: Any = None
    right: Any = None
    #: Channels whose messages are not compared in this step.
    unheard: tuple[str, ...] = ()
    #: Whether jobs may be removed, and parents released, in another order: we begin with the oldest job of a state, and
    #: remove children before parents.
    releases: bool = False
    #: Whether Node's call that delays a failed job also claims the next one: then Node, unlike us, does not set the
    #: marker to the time of the first delayed job.
    delays_unmarked: bool = False
    #: Whether BullMQ 5 resumed a queue that was not paused: Node, unlike us, does not wake workers for waiting jobs.
    wakes_none: bool = False


@dataclass
class ClaimedBatch:
    """Jobs that one call claimed on both sides and that are not settled yet."""

    queue: str
    token: str
    #: Each with the token of Node's lock.
    jobs: list[tuple[ClaimedJob, str]]
    is_obliterated: bool = False


class LifeDiffers(AssertionError):
    """The two sides differ; the message lists the steps so far and the differences."""


@dataclass
class Lives:
    """Two sides under two prefixes: `left` is Node, `ours` is ours; `nodes` has a Node library for each prefix."""

    peer: Peer
    nodes: tuple[NodePeer, NodePeer]
    client: Redis
    url: str
    steps: int = 0
    window: Window = field(default_factory=Window)
    held: list[ClaimedBatch] = field(default_factory=list)
    raw: dict[str, Dump] = field(default_factory=dict)
    script: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = {"url": self.url, "prefix": PREFIXES[1], "protocol": self.peer.dialect}
        if self.bullmq:
            options["bullmq_version"] = self.peer.alias.partition("-")[2].partition(".")[0]
        self.ours = {name: BullQueue(name, **options) for name in QUEUES}
        self._listener = self.client.pubsub()
        for prefix in PREFIXES:
            self._listener.psubscribe(f"{prefix}:*")
        for _ in PREFIXES:
            self._listener.get_message(timeout=PATIENCE_S)
        for node, prefix in zip(self.nodes, PREFIXES, strict=True):
            for queue in QUEUES:
                node.call("counts", queue=queue)
                node.call("claim", queue=queue, count=0)
                if self.bullmq:
                    meta = f"{prefix}:{queue}:meta"
                    wait_until(lambda meta=meta: self.client.hget(meta, "version"), f"Node to write {meta}")

    @property
    def bullmq(self) -> bool:
        return self.peer.dialect == "bullmq"

    def close(self) -> None:
        self._listener.close()
        for queue in self.ours.values():
            queue.close()

    def live(self, steps: Sequence[Step]) -> None:
        """Runs the steps on an empty Redis. Raises LifeDiffers at the first difference."""
        self._begin()
        for one in steps:
            answers = getattr(self, f"_{one.verb}")(**one.args)
            if answers is None:
                continue
            self.steps += 1
            self.script.append(f"{answers.said}  ->  {_short(answers.left)}")
            found = difference(_plain(answers.left), _plain(answers.right))
            found = [f"answer{sentence}" for sentence in found] + self._differences(answers)
            if found:
                lived = "\n".join(f"  {number}. {line}" for number, line in enumerate(self.script, 1))
                again = "\n".join(f"    {one!r}," for one in steps)
                raise LifeDiffers(f"{self.peer}:\n{lived}\n" + "\n".join(found[:40]) + f"\nas steps:\n{again}")

    def shortest(self, life: Sequence[Step], apart: LifeDiffers) -> LifeDiffers:
        """The failing sequence without the steps that it does not need, found with at most TRIES runs."""
        rest, size, tries = list(life), len(life) // 2, 0
        while size:
            first = 0
            while first < len(rest) and tries < TRIES:
                without, tries = rest[:first] + rest[first + size :], tries + 1
                try:
                    self.live(without)
                    first += size
                except LifeDiffers as still:
                    rest, apart = without, still
            size //= 2
        return apart

    def _begin(self) -> None:
        self.client.flushall()
        self.window, self.held, self.script, self._numbers = Window(), [], [], count(1)
        if self.bullmq:
            # As Node writes it when a queue is opened, which happened before flushall.
            for prefix in PREFIXES:
                for queue in QUEUES:
                    signs = {"version": self.peer.alias.replace("-", ":"), "opts.maxLenEvents": 10_000}
                    self.client.hset(f"{prefix}:{queue}:meta", mapping=signs)
        self._look()

    # comparison

    def _look(self) -> None:
        self.raw = {
            prefix: {
                f"{queue}:{name}": key
                for queue in QUEUES
                for name, key in dump(self.client, prefix, queue).items()
                if not name.startswith("spark:")
            }
            for prefix in PREFIXES
        }

    def _ids(self, queue: str, state: str) -> list[str]:
        """Ids of Node's jobs in a state, in order; for `any`, of all jobs."""
        left = self.raw[PREFIXES[0]]
        if state == "any":
            names = [name.partition(":")[2] for name, key in left.items() if "opts" in key.value and key.type == "hash"]
            return [name for name in names if f"{queue}:{name}" in left and not name.startswith("d")]
        key = left.get(f"{queue}:{state}")
        return [item if isinstance(item, str) else item[0] for item in key.value] if key else []

    def _members(self, queue: str, state: str) -> list[tuple[str, float]]:
        key = self.raw[PREFIXES[0]].get(f"{queue}:{state}")
        return list(key.value) if key else []

    def _differences(self, answers: Answers) -> list[str]:
        if answers.releases:
            self._order_as_in_node()
        self._look()
        messages = self._messages()
        left, right = (_renamed(self._normal(prefix), prefix) for prefix in PREFIXES)
        sides = Sides((left, right), messages, answers)
        for known in KNOWN:
            if self.peer.alias.startswith(known.packages):
                known.leave_out(sides)
        found = difference(left, right)
        found += [f"published{sentence}" for sentence in difference(*sides.messages)]
        for prefix in PREFIXES:
            for queue in QUEUES:
                # So that the next step shows only its own events.
                self.client.delete(f"{prefix}:{queue}:marker")
                self.client.xtrim(f"{prefix}:{queue}:events", maxlen=0, approximate=False)
        self._stamp_as_in_node()
        return found

    def _normal(self, prefix: str) -> Any:
        normal: dict[str, Any] = {}
        for queue in QUEUES:
            raw = {
                name[len(queue) + 1 :]: key for name, key in self.raw[prefix].items() if name.startswith(f"{queue}:")
            }
            for name, key in normalise(raw, self.window, Hours).items():
                normal[f"{queue}:{name}"] = {key.type: key.value, "expires": key.expires}
            if _may_be_taken(raw):
                normal.setdefault(f"{queue}:marker", {"zset": []})["job may be taken"] = True
        return normal

    def _order_as_in_node(self) -> None:
        for name in [f"{queue}:{waiting}" for queue in QUEUES for waiting in ("wait", "paused")]:
            left, ours = (self.client.lrange(f"{prefix}:{name}", 0, -1) for prefix in PREFIXES)
            if left != ours and sorted(left) == sorted(ours):
                self.client.delete(f"{PREFIXES[1]}:{name}")
                self.client.rpush(f"{PREFIXES[1]}:{name}", *left)

    def _stamp_as_in_node(self) -> None:
        """Copies Node's times: Node settles jobs one by one, we settle a chunk in one millisecond."""
        for name in [f"{queue}:{state}" for queue in QUEUES for state in ("completed", "failed", "delayed")]:
            if scores := self.client.zrange(f"{PREFIXES[0]}:{name}", 0, -1, withscores=True):
                self.client.zadd(f"{PREFIXES[1]}:{name}", dict(scores), xx=True)

    def _messages(self) -> tuple[list[Any], ...]:
        heard: dict[str, list[tuple[str, str]]] = {prefix: [] for prefix in PREFIXES}
        for prefix in PREFIXES:
            self.client.publish(f"{prefix}:end:of", b"")
        ended = 0
        while ended < len(PREFIXES):
            message = self._listener.get_message(timeout=PATIENCE_S)
            if message is None:
                raise AssertionError("expected the messages of both sides, received nothing for minutes")
            if message["type"] == "pmessage":
                channel, text = message["channel"].decode(), message["data"].decode()
                ended += channel.endswith(":end:of")
                if not channel.endswith(":end:of"):
                    heard[channel.partition(":")[0]].append((channel, text))
        return tuple(normalise_messages(messages, prefix, {}, self.window, Hours) for prefix, messages in heard.items())

    # steps

    def _both(self, left: Callable[[], Any], right: Callable[[], Any]) -> tuple[Any, Any]:
        """The replies of both sides; errors count as equal."""
        return _answer(left), _answer(right)

    def _node(self, cmd: str, side: int = 0, **args: Any) -> Any:
        return self.nodes[side].call(cmd, **args)

    def _by_node(self, said: str, cmd: str, **args: Any) -> Answers:
        """Runs an operation that only Node supports on both sides."""
        return Answers(said, *(_answer(lambda side=side: self._node(cmd, side, **args)) for side in (0, 1)))

    def _add(self, jobs: list[Job], queue: str = QUEUES[0]) -> Answers:
        new_jobs = self.ours[queue]
        answers = self._both(
            lambda: self._node("add", queue=queue, jobs=jobs),
            lambda: new_jobs.add_many([_new_job(job) for job in jobs]).ids,
        )
        return Answers(f"add to {queue}: {json.dumps(jobs)}", *answers)

    def _claim(self, count: int, queue: str = QUEUES[0]) -> Answers:
        token = self._token()
        if self._is_limited(queue):
            count = 1
        left = self._node("claim", queue=queue, count=count, token=token)
        claim = claims.work(self.ours[queue].handle, CLAIM_SETTINGS, None, count, token=token)
        return Answers(f"claim {count} of {queue}", *self._claimed(queue, token, left, claim.jobs))

    def _claimed(self, queue: str, token: str, left: list[Any], jobs: list[ClaimedJob]) -> tuple[Any, Any]:
        """Records the claimed jobs; returns the fields that both sides see."""
        tokens = {job["id"]: job["token"] for job in left}
        self.held.append(ClaimedBatch(queue, token, [(job, tokens.get(job.id, token)) for job in jobs]))
        seen = [{name: job[name] for name in self._counters} | {"id": job["id"]} for job in left]
        ours = {"attemptsMade": "attempts_made", "attemptsStarted": "attempts_started"}
        return seen, [{name: getattr(job, ours[name]) for name in self._counters} | {"id": job.id} for job in jobs]

    @property
    def _counters(self) -> list[str]:
        # Node counts the claim itself as a start.
        return ["attemptsMade", "attemptsStarted"] if self.bullmq else ["attemptsMade"]

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
            held.jobs = [one for one in held.jobs if f"{held.queue}:{one[0].id}" not in self.raw[PREFIXES[0]]]
            if not held.jobs:
                return None
        if held.is_obliterated:
            # Node's processor limits the rate of the queue before it ends, also for a job that is gone.
            does = [one for one in does if one[0] != "limit"]
            if not does:
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
        left = self._node("settle", queue=held.queue, outcomes=[done[i] for i in order], count=then, token=token)
        claim_of_ours = claims.work(handle, CLAIM_SETTINGS, outcomes, then, token=token)
        failed = fail_blocked(handle, OutcomePolicy(), outcomes, claim_of_ours.lost, now)
        if len(failed):
            claims.work(handle, CLAIM_SETTINGS, failed, 0)
        said = ", ".join(f"{i} {done[i]['does']} {json.dumps(done[i]['value'])}" for i in order)
        said = f"settle in {held.queue}: {said}" + (f"; claim {then}" if then else "")
        # Node's worker keeps the rate limit of a processor in memory, where the adapter resets it.
        self.client.delete(handle.keys["rate_limited"])
        delays_unmarked = bool(left) and any(job.delay and job.id == order[-1] for job in outcomes.retried)
        answers = self._claimed(held.queue, token, left, claim_of_ours.jobs)
        return Answers(said, *answers, delays_unmarked=delays_unmarked)

    def _is_limited(self, queue: str) -> bool:
        """Whether the queue has a rate limit: jobs that fail without being run count for our call, not for Node's."""
        return "max" in getattr(self.raw[PREFIXES[0]].get(f"{queue}:meta"), "value", {})

    def _is_blocked(self, queue: str, job_id: str) -> bool:
        """Whether a job cannot complete because of its children."""
        return any(f"{queue}:{job_id}:{keys}" in self.raw[PREFIXES[0]] for keys in ("dependencies", "unsuccessful"))

    def _report(self, what: str, value: Any, job: int, queue: str = QUEUES[0]) -> Answers | None:
        """Updates progress, logs or data of an existing job."""
        if not (job_id := self._pick(queue, "any", job)):
            return None
        handle, opts = self.ours[queue].handle, self._field(queue, job_id, "opts")
        update_data_of_node = "updateData" if self.bullmq else "update"
        node_method, ours = {
            "progress": (
                "updateProgress" if self.bullmq else "progress",
                lambda: update_progress(handle, job_id, json_text("progress", value)),
            ),
            "log": ("log", lambda: add_log(handle, job_id, str(value), job_options(opts).log_limit)),
            "data": (update_data_of_node, lambda: update_data(handle, job_id, json_text("data", value))),
        }[what]
        args = [str(value) if what == "log" else value]
        self._node("invoke", queue=queue, jobId=job_id, method=node_method, args=args)
        ours()
        return Answers(f"{what} of {job_id} in {queue}: {json.dumps(value)}")

    def _pick(self, queue: str, state: str, job: int) -> str | None:
        ids = self._ids(queue, state)
        return ids[job % len(ids)] if ids else None

    def _field(self, queue: str, job_id: str, name: str) -> str:
        return str(self.raw[PREFIXES[0]][f"{queue}:{job_id}"].value.get(name, ""))

    def _expire(self, job: int, queue: str = QUEUES[0]) -> Answers | None:
        """The lock of an active job expires, as if its worker had died; one at a time, since `stalled` has no order."""
        left = self.raw[PREFIXES[0]]
        ids = self._ids(queue, "active")
        if not ids or any(f"{queue}:{job_id}:lock" not in left for job_id in ids):
            return None
        job_id = ids[job % len(ids)]
        for prefix in PREFIXES:
            self.client.delete(f"{prefix}:{queue}:{job_id}:lock")
        if not self.bullmq:
            # Bull uses one token for all jobs, so a worker that lost a lock could settle with the next one.
            for held in self.held:
                held.jobs = [(job, token) for job, token in held.jobs if job.id != job_id]
        return Answers(f"the lock of {job_id} in {queue} expires")

    def _rescue(self, queue: str = QUEUES[0]) -> Answers | None:
        if not self._ids(queue, "active"):
            # We write `stalled-check` only if jobs are active.
            return None
        for prefix in PREFIXES:
            self.client.delete(f"{prefix}:{queue}:stalled-check")
        self._node("rescue", queue=queue)
        claims.rescue(self.ours[queue].handle)
        return Answers(f"rescue in {queue}")

    def _lose(self, state: str, job: int, queue: str = QUEUES[0]) -> Answers | None:
        """Deletes the hash of a job, but not its id."""
        if not (job_id := self._pick(queue, state, job)):
            return None
        for prefix in PREFIXES:
            self.client.delete(f"{prefix}:{queue}:{job_id}")
        return Answers(f"job {job_id} ({state}) in {queue} is lost")

    def _page(self, state: str, start: int, stop: int, queue: str = QUEUES[0]) -> Answers:
        jobs = self._node("getJobs", queue=queue, states=[state], start=start, end=stop, asc=True)
        page = self.ours[queue].page(state, start, stop)
        return Answers(
            f"page {start} to {stop} of {state} in {queue}", [job["id"] for job in jobs], [j.id for j in page]
        )

    def _remove_by_id(self, state: str, job: int, queue: str = QUEUES[0]) -> Answers | None:
        """Removes a job that cannot be read."""
        if not (job_id := self._pick(queue, state, job)):
            return None
        self._node("invoke", queue=queue, method="remove", args=[job_id])
        self.ours[queue].remove(job_id)
        return Answers(f"remove {job_id} ({state}) in {queue} by its id")

    def _due(self, count: int, queue: str = QUEUES[0]) -> Answers | None:
        """Makes the first delayed jobs due."""
        ids = self._ids(queue, "delayed")[:count]
        if not ids:
            return None
        for prefix in PREFIXES:
            for number, job_id in enumerate(ids, 1000):
                self.client.zadd(f"{prefix}:{queue}:delayed", {job_id: number * 4096}, xx=True)
        return Answers(f"{', '.join(ids)} in {queue} are due")

    def _promote_due(self, queue: str = QUEUES[0]) -> Answers | None:
        """BullMQ promotes when a worker claims, so this step claims one job afterwards."""
        if not self.bullmq:
            if not any(score < HOUR * 4096 for _, score in self._members(queue, "delayed")):
                return None
            self._node("promoteDue", queue=queue)
            service_verbs.promote_due(self.ours[queue].handle)
            return Answers(f"promote what is due in {queue}")
        service_verbs.promote_due(self.ours[queue].handle)
        # We write the time of the next delayed job to the marker; Node's workers read it themselves.
        self.client.zrem(f"{PREFIXES[1]}:{queue}:marker", "1")
        answers = self._claim(1, queue)
        return answers._replace(said=f"promote what is due in {queue}; {answers.said}")

    def _manage(self, verb: str, state: str, job: int, queue: str = QUEUES[0]) -> Answers | None:
        """retry, promote or remove one job of a state."""
        if verb == "retry" and state != "failed" and not self.bullmq:
            # Bull refuses, but has already deleted `processedOn`.
            return None
        if not (job_id := self._pick(queue, state, job)):
            return None
        if verb == "remove" and self._is_endless(f"{queue}:{job_id}"):
            # Node refuses: its search does not end.
            return None
        ours = self.ours[queue]
        answers = self._both(lambda: self._node(verb, queue=queue, jobId=job_id), lambda: getattr(ours, verb)(job_id))
        return Answers(f"{verb} {job_id} ({state}) in {queue}", *answers, releases=verb == "remove")

    def _leave_parent(self, job: int, queue: str = QUEUES[0]) -> Answers | None:
        """Removes a child from the children of its parent."""
        children = [job_id for job_id in self._ids(queue, "any") if self._field(queue, job_id, "parentKey")]
        if not children:
            return None
        job_id = children[job % len(children)]
        answers = self._both(
            lambda: self._node("invoke", queue=queue, jobId=job_id, method="removeChildDependency"),
            lambda: self.ours[queue].remove_child_dependency(job_id),
        )
        return Answers(f"remove the dependency on {job_id} in {queue}", *answers)

    def _remove_children(self, job: int, queue: str = QUEUES[0]) -> Answers | None:
        """Removes the unprocessed children of a job."""
        left = self.raw[PREFIXES[0]]
        parents = [job_id for job_id in self._ids(queue, "any") if f"{queue}:{job_id}:dependencies" in left]
        if not parents:
            return None
        job_id = parents[job % len(parents)]
        if self._has_cycle(f"{queue}:{job_id}"):
            # Jobs are removed in another order: the events show it.
            return None
        self._node("invoke", queue=queue, jobId=job_id, method="removeUnprocessedChildren")
        self.ours[queue].remove_unprocessed_children(job_id)
        return Answers(f"remove the unprocessed children of {job_id} in {queue}", releases=True)

    def _children(self, job: str, kinds: tuple[str, ...]) -> list[str]:
        """The children of a job, `<queue>:<id>`, in these keys of it."""
        keys = [self.raw[PREFIXES[0]].get(f"{job}:{kind}") for kind in kinds]
        # A member of a sorted set comes with its score.
        members = [member if isinstance(member, str) else member[0] for key in keys if key for member in key.value]
        return [member.partition(":")[2] for member in members]

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

    def _retry_completed(self, job: int, queue: str = QUEUES[0]) -> Answers | None:
        if not self.bullmq or not (job_id := self._pick(queue, "completed", job)):
            return None
        answers = self._both(
            lambda: self._node("invoke", queue=queue, jobId=job_id, method="retry", args=["completed"]),
            lambda: self.ours[queue].retry(job_id, "completed"),
        )
        return Answers(f"retry {job_id} (completed) in {queue}", *answers)

    def _clean(self, state: str, limit: int, grace: int = 0, queue: str = QUEUES[0]) -> Answers | None:
        if not self.bullmq and (state == "prioritized" or (state == "delayed" and limit)):
            # With a limit, Bull compares the scores of delayed jobs as times, and finds none.
            return None
        if self.bullmq and state == "active" and limit:
            # Node examines `limit` jobs at a time, and ends when all of them are locked.
            return None
        answers = self._both(
            lambda: sorted(self._node("clean", queue=queue, grace=grace, state=state, limit=limit)),
            lambda: sorted(self.ours[queue].clean(grace, limit, state)),
        )
        return Answers(f"clean {state} of {queue}, grace {grace}, limit {limit}", *answers, releases=True)

    def _drain(self, delayed: bool, queue: str = QUEUES[0]) -> Answers | None:
        if not self.bullmq:
            return None
        self._node("empty", queue=queue, delayed=delayed)
        self.ours[queue].drain(delayed=delayed)
        return Answers(f"drain {queue}, delayed {delayed}", releases=True)

    def _obliterate(self, force: bool, queue: str = QUEUES[0]) -> Answers | None:
        if not force and self._ids(queue, "active"):
            # Node refuses, but has already paused the queue.
            return None
        answers = self._both(
            lambda: self._node("obliterate", queue=queue, force=force),
            lambda: self.ours[queue].obliterate(force=force),
        )
        for held in self.held:
            held.is_obliterated = held.is_obliterated or held.queue == queue
        # Node keeps the counter of the rate limit, which expires.
        self.client.delete(f"{PREFIXES[0]}:{queue}:limiter")
        if not self.bullmq:
            # Bull keeps the debounce ids of obliterated jobs. Ids of jobs that were removed before stay on both sides.
            for name, key in self.raw[PREFIXES[0]].items():
                if name.startswith(f"{queue}:") and key.type == "hash" and "deid" in key.value:
                    self.client.delete(f"{PREFIXES[0]}:{queue}:de:{key.value['deid']}")
        # Node publishes `paused` again for a paused queue.
        unheard = ("paused",) if self._paused(queue) else ()
        return Answers(f"obliterate {queue}, force {force}", *answers, unheard, releases=True)

    def _paused(self, queue: str) -> bool:
        left = self.raw[PREFIXES[0]]
        return f"{queue}:meta-paused" in left or "paused" in getattr(left.get(f"{queue}:meta"), "value", {})

    def _pause(self, queue: str = QUEUES[0]) -> Answers:
        self._node("pause", queue=queue)
        self.ours[queue].pause()
        return Answers(f"pause {queue}")

    def _resume(self, queue: str = QUEUES[0]) -> Answers:
        wakes_none = not self._paused(queue) and self.peer.alias.startswith("bullmq-5")
        self._node("resume", queue=queue)
        self.ours[queue].resume()
        return Answers(f"resume {queue}", wakes_none=wakes_none)

    def _set(self, method: str, args: list[Any], queue: str = QUEUES[0]) -> Answers | None:
        """Changes settings of the queue that only Node supports."""
        if not self.bullmq:
            return None
        return self._by_node(
            f"{method}({', '.join(map(str, args))}) of {queue}", "invoke", queue=queue, method=method, args=args
        )

    def _flow(self, flow: dict[str, Any]) -> Answers | None:
        if not self.bullmq:
            return None
        return self._by_node(f"Node adds the flow {json.dumps(flow)}", "flow", flow=flow)


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


def _new_job(job: Job) -> NewJob:
    return NewJob(**new_job_arguments(job))


def _answer(call: Callable[[], Any]) -> Any:
    """The reply, or "refused" for any error, since the messages of both sides differ."""
    try:
        return call()
    except (NodeError, SparkBullError):
        return "refused"


@dataclass
class Sides:
    """The results of a step, Node's first: keys as {type: value, "expires": …}, messages as (channel, text)."""

    keys: tuple[dict[str, Any], ...]
    messages: tuple[list[Any], ...]
    answers: Answers

    def change(self, names: tuple[str, ...], kind: str, change: Callable[[Any], Any]) -> None:
        """Changes the values of keys of a type whose names end with one of `names`."""
        for side in self.keys:
            for name, shown in side.items():
                if name.endswith(names) and kind in shown:
                    shown[kind] = change(shown[kind])

    def forget_messages(self, *channels: str) -> None:
        for heard in self.messages:
            heard[:] = [message for message in heard if message[0] not in channels]


def _sort_events(sides: Sides) -> None:
    if sides.answers.releases:
        sides.change((":events",), "stream", lambda events: sorted(events, key=str))


def _count_traces(sides: Sides) -> None:
    def counted(fields: dict[str, Any]) -> dict[str, Any]:
        trace = fields.get("stacktrace")
        return {**fields, "stacktrace": len(trace)} if isinstance(trace, list) else fields

    sides.change(("",), "hash", counted)


def _forgive_markers(sides: Sides) -> None:
    left, right = sides.keys
    for name in [f"{queue}:marker" for queue in QUEUES]:
        theirs, ours = (side.pop(name, {"zset": []}) for side in (left, right))
        if sides.answers.wakes_none:
            continue
        due = [[pair for pair in marker["zset"] if pair[0] != "0"] for marker in (theirs, ours)]
        if sides.answers.delays_unmarked:
            due = [[], []]
        theirs_wakes, ours_wakes = (any(pair[0] == "0" for pair in marker["zset"]) for marker in (theirs, ours))
        if "job may be taken" in ours:
            left[name], right[name] = [due[0], theirs_wakes], [due[1], ours_wakes and theirs_wakes]
        else:
            left[name], right[name] = [due[0], theirs_wakes and ours_wakes], [due[1], ours_wakes]


class Known(NamedTuple):
    """An intended difference: the packages, the reason, and a function that removes it on both sides."""

    packages: str
    reason: str
    leave_out: Callable[[Sides], None]


KNOWN = [
    Known(
        "bull-",
        "`drained`: Node publishes it whenever a worker finds no job, we when the last job is settled",
        lambda sides: sides.forget_messages("drained"),
    ),
    Known(
        "",
        "messages that Node publishes again although the state does not change",
        lambda sides: sides.forget_messages(*sides.answers.unheard),
    ),
    Known(
        "bullmq-",
        "jobs removed and parents released in one call have no order",
        _sort_events,
    ),
    Known(
        "bullmq-",
        "markers: Node's claims leave one although no job may be claimed, we write one only if a job may be claimed",
        _forgive_markers,
    ),
    Known("", "traces depend on the language", _count_traces),
    Known(
        "",
        "jobs that finish in one millisecond have no order",
        lambda sides: sides.change(("completed", "failed", "waiting-children", "unsuccessful"), "zset", _sorted),
    ),
    Known(
        "",
        "`stalled-check` contains the time of the check",
        lambda sides: sides.change((":stalled-check",), "string", lambda _: "<now>"),
    ),
]


def _sorted(members: list[Any]) -> list[Any]:
    return sorted(members, key=str)


def _may_be_taken(queue: Dump) -> bool:
    """Whether a BullMQ worker could claim a job; if not, a marker is not needed, but Node's claims leave one."""
    meta = queue["meta"].value if "meta" in queue else {}
    active = len(queue["active"].value) if "active" in queue else 0
    maxed = "concurrency" in meta and active >= int(meta["concurrency"])
    return ("wait" in queue or "prioritized" in queue) and "paused" not in meta and not maxed


#: The messages of both sides about a parent that cannot complete.
_BLOCKED = re.compile(r"Cannot complete job \S+ because[^\"]*|Job \S+ has (a failed child|pending dependencies)[^\"]*")


def _renamed(value: Any, prefix: str) -> Any:
    """Removes the prefix, which is part of values that refer to parents and children."""
    return json.loads(_BLOCKED.sub("<blocked>", json.dumps(value).replace(f"{prefix}:", "<prefix>:")))


def _plain(answer: Any) -> Any:
    return {"": answer}


def _short(answer: Any) -> str:
    text = json.dumps(answer)
    return text if len(text) < 300 else text[:300] + "…"
