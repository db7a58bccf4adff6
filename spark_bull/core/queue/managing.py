"""The methods of BullQueue that change a queue as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spark_bull.core.dialects.base import StateKey
from spark_bull.core.dialects.fields import integer_of
from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import DialectError, check_count
from spark_bull.core.late import late
from spark_bull.core.queue.adding import OpenQueue
from spark_bull.core.queue.handle.admission import is_intake_open
from spark_bull.core.queue.handle.handle import MOVE_SIZE, REMOVE_SIZE, SWEEP_AFTER_MS, QueueHandle

if TYPE_CHECKING:
    from spark_bull.core.model import queues
    from spark_bull.core.model.limits import Group
    from spark_bull.core.model.queues import QueueLimits, WriteRecord
    from spark_bull.core.queue.dispatch import roll_forward
    from spark_bull.core.queue.jobs import objects
    from spark_bull.core.queue.manage import leftovers, limits, manage
    from spark_bull.core.queue.manage.leftovers import Swept
else:
    (queues,) = late("queues", of="spark_bull.core.model")
    (roll_forward,) = late("roll_forward", of="spark_bull.core.queue.dispatch")
    (objects,) = late("objects", of="spark_bull.core.queue.jobs")
    leftovers, limits, manage = late("leftovers", "limits", "manage", of="spark_bull.core.queue.manage")

#: Number of started jobs that exhausts every rate limit, as in BullMQ: the largest integer of JavaScript.
_EXHAUSTED: Final = 2**53 - 1
#: Field of `meta` with a limit that has another name.
_FIELDS: Final = {"duration_ms": "duration"}
_FINISHED: Final = ("completed", "failed")
_WAITING: Final = ("wait", "paused", "prioritized")
_NOT_CLEANED: Final = "waiting-children"
_NO_LIMIT: Final = 2**53
#: The position before the first id of a state.
_BEGINNING: Final = b"0"


@short_errors
class Managing(OpenQueue):
    """Changes the queue: pauses, intake, limits, groups, and what is removed from it."""

    def remove_deduplication_key(self, deduplication_id: str, job_id: str | None = None) -> bool:
        """Frees a deduplication id, so that the next job that has it is added.

        Parameters:
          deduplication_id: the deduplication id.
          job_id: frees it only if this job has it.

        Returns:
          Whether it was freed.

        Raises:
          DialectError: for a queue of Bull 1 or 2.
        """
        return manage.free(self.handle, deduplication_id, job_id)

    def pause(self) -> None:
        """Keeps workers from claiming more jobs; active jobs continue."""
        is_first = True
        while self.handle.run_once("pause", {"limit": MOVE_SIZE, "first": int(is_first)}):
            is_first = False

    def resume(self) -> None:
        """Lets workers claim jobs again, whichever version paused the queue or added jobs since."""
        while self.handle.run_once("resume", {"limit": MOVE_SIZE}):
            pass

    def is_paused(self) -> bool:
        """Returns whether the queue is paused for all workers."""
        return manage.is_paused(self.handle)

    def close_intake(self) -> None:
        """Lets the queue accept no more jobs and schedulers: writes of Spark and this class raise IntakeClosed.

        Workers go on.

        Producers of Node do not know of it, and still add jobs. Jobs that workers add, follow-up jobs and the next jobs
        of schedulers, and the jobs of registered writes are added. It is no pause, which stops workers, and
        not `close()`, which closes connections. It lasts until `open_intake`, even if the queue is obliterated.
        """
        self.handle.connection.call("SET", self.handle.keys["intake_closed"], 1)

    def open_intake(self) -> None:
        """Lets the queue accept jobs again."""
        self.handle.connection.call("DEL", self.handle.keys["intake_closed"])

    def is_intake_open(self) -> bool:
        """Returns whether the queue accepts jobs. It accepts none from `close_intake` to `open_intake`."""
        return is_intake_open(self.handle)

    def set_limits(
        self,
        *,
        concurrency: int | None = None,
        max: int | None = None,
        duration_ms: int | None = None,
    ) -> None:
        """Sets limits of the queue over all its workers, also workers of Node (BullMQ). Other limits stay.

        They are the limits of BullMQ's setGlobalConcurrency and setGlobalRateLimit. Idle workers are woken.

        Parameters:
          concurrency: maximum number of active jobs.
          max: maximum number of jobs that start in `duration_ms`.
          duration_ms: the period of `max`, ms.

        Raises:
          OptionError: for an argument that is wrong, or `max` without `duration_ms`.
          DialectError: for a queue of Bull, which has no limits of its own.
        """
        self.handle.dialect.require("queue-limits")
        given = limits.given_limits({"concurrency": concurrency, "max": max, "duration_ms": duration_ms})
        limits.set_limits(self.handle, {_FIELDS.get(name, name): value for name, value in given.items()})

    def remove_limits(self, *, concurrency: bool = True, rate: bool = True) -> None:
        """Removes limits of the queue, as removeGlobalConcurrency and removeGlobalRateLimit do (BullMQ).

        Parameters:
          concurrency: whether to remove the limit of active jobs.
          rate: whether to remove the rate limit, `max` and `duration_ms`.

        Raises:
          DialectError: for a queue of Bull.
        """
        self.handle.dialect.require("queue-limits")
        names = [*(["concurrency"] if concurrency else []), *(["max", "duration"] if rate else [])]
        limits.set_limits(self.handle, {}, names)

    def limits(self) -> QueueLimits:
        """Reads the limits of the queue over all its workers (BullMQ).

        Raises:
          DialectError: for a queue of Bull.
        """
        self.handle.dialect.require("queue-limits")
        keys = self.handle.keys
        fields, active, started, left, left_of_spark = self.handle.connection.pipeline(
            [
                ("HMGET", keys["meta"], "concurrency", "max", "duration"),
                ("LLEN", keys["active"]),
                ("GET", keys["limiter"]),
                ("PTTL", keys["limiter"]),
                ("PTTL", keys["rate_limited"]),
            ]
        )
        concurrency, most, duration = map(integer_of, fields)
        is_exhausted = (integer_of(started) or 0) >= (most or _EXHAUSTED)
        limited_ms = max(left if is_exhausted else 0, left_of_spark, 0)
        return queues.QueueLimits(
            concurrency, most, duration, limited_ms, concurrency is not None and active >= concurrency
        )

    def is_maxed(self) -> bool:
        """Returns whether as many jobs are active as the limit `concurrency` of the queue allows, as isMaxed (BullMQ).

        Returns:
          False also if there is no such limit.

        Raises:
          DialectError: for a queue of Bull.
        """
        return self.limits().is_maxed

    def rate_limit(self, duration_ms: int) -> None:
        """Keeps workers from starting jobs for a time, as BullMQ's rateLimit does; active jobs continue.

        All workers of Spark obey; workers of Node only if the queue, or the worker, has a rate limit.

        Parameters:
          duration_ms: for how long, ms.

        Raises:
          OptionError: for a duration that is no positive integer.
          DialectError: for a queue of Bull.
        """
        self.handle.dialect.require("queue-limits")
        limits.check_positive("duration_ms", duration_ms)
        keys = self.handle.keys
        # The first key is for workers with a limiter, also Node's, the second one for all workers of Spark.
        self.handle.connection.pipeline(
            [
                ("SET", keys["limiter"], _EXHAUSTED, "PX", duration_ms),
                ("SET", keys["rate_limited"], 1, "PX", duration_ms),
            ]
        )

    def remove_rate_limit(self) -> None:
        """Ends what `rate_limit` has begun, and the current period of a rate limit, as removeRateLimitKey (BullMQ).

        A waiting worker of Spark looks again within 10 s.

        Raises:
          DialectError: for a queue of Bull.
        """
        self.handle.dialect.require("queue-limits")
        self.handle.connection.call("DEL", self.handle.keys["limiter"], self.handle.keys["rate_limited"])

    def set_group_limit(
        self,
        group: str,
        *,
        concurrency: int | None = None,
        max: int | None = None,
        duration_ms: int | None = None,
    ) -> None:
        """Sets limits of one group of jobs, for the workers of Spark that have `group`. Its other limits stay.

        They can be set before the first job of the queue is added.

        Parameters:
          group: name of the group.
          concurrency: maximum number of its jobs that run at the same time.
          max: maximum number of its jobs that start in `duration_ms`.
          duration_ms: the period of `max`, ms.

        Raises:
          OptionError: for an argument that is wrong, and for `max` without `duration_ms`.
        """
        checked = limits.checked_name(group)
        given = limits.given_limits({"concurrency": concurrency, "max": max, "duration_ms": duration_ms})
        limits.change_groups(self.handle, [limits.GroupChange(checked, given)])

    def remove_group_limit(self, group: str, *, concurrency: bool = True, rate: bool = True) -> None:
        """Removes limits of one group of jobs: then the workers' limits hold.

        Parameters:
          group: name of the group.
          concurrency: whether to remove the limit of running jobs.
          rate: whether to remove the rate limit, `max` and `duration_ms`.

        Raises:
          OptionError: if the name is no text.
        """
        removed = [*(["concurrency"] if concurrency else []), *(["max", "duration_ms"] if rate else [])]
        limits.change_groups(self.handle, [limits.GroupChange(group, {}, removed)])

    def pause_group(self, group: str) -> None:
        """Keeps workers of Spark from starting jobs of a group, until it is resumed; its active jobs continue.

        Parameters:
          group: name of the group.

        Raises:
          OptionError: if the name is no text.
        """
        limits.change_groups(self.handle, [limits.GroupChange(group, {"paused": True})])

    def resume_group(self, group: str) -> None:
        """Lets workers start jobs of a group again.

        Parameters:
          group: name of the group.

        Raises:
          OptionError: if the name is no text.
        """
        limits.change_groups(self.handle, [limits.GroupChange(group, {}, ["paused"])])

    def groups(self) -> Iterator[Group]:
        """Reads the groups of jobs that workers of Spark have met, 25 per call.

        Returns:
          Those with waiting or active jobs, or with limits, a pause or a rest of their own.
        """
        return limits.read_groups(self.handle)

    def clean(self, grace_ms: int = 0, limit: int = 0, state: str = "completed") -> list[str]:
        """Removes old jobs of a state.

        Age counts from when a job ended, else started, else was added; in bull-1, and for prioritized jobs of BullMQ,
        always from when it was added. Locked jobs and the next jobs of job schedulers stay.

        Parameters:
          grace_ms: minimum age of the jobs, ms.
          limit: maximum number of jobs; 0: all.
          state: name of the state, as in `counts()`.

        Returns:
          Ids of the removed jobs, as Node's `clean` does. They take about 100 bytes of memory each: clean millions of
          jobs in several calls with a `limit`.

        Raises:
          OptionError: for an argument that is wrong.
          DialectError: for a state that the dialect lacks, or that can't be cleaned.
        """
        for name, number in (("grace_ms", grace_ms), ("limit", limit)):
            check_count(name, number)
        store, ids = self.handle.dialect.state_key(state), list[str]()
        if state == _NOT_CLEANED:
            raise DialectError(f"jobs in {state} can't be cleaned, as others depend on them: remove them one by one")
        before = self.handle.connection.now_ms() - grace_ms
        args = {"state": state, "before": before, "finished": int(state in _FINISHED)}
        position = _BEGINNING
        while position:
            args |= {"removed": len(ids), "limit": limit - len(ids) if limit else _NO_LIMIT}
            position, removed = _swept(self.handle, "clean", store, position, args)
            ids += [job_id.decode("utf-8", "replace") for job_id in removed]
        return ids

    def drain(self, *, delayed: bool = False) -> int:
        """Removes all jobs that wait for a worker; a paused queue stays paused, the next jobs of job schedulers stay.

        Parameters:
          delayed: whether to remove delayed jobs, too.

        Returns:
          How many jobs were removed.
        """
        states = (*_WAITING, *(["delayed"] if delayed else []))
        total = 0
        for state in filter(self.handle.dialect.states.__contains__, states):
            position, store = _BEGINNING, self.handle.dialect.state_key(state)
            while position:
                position, removed = _swept(self.handle, "drain", store, position, {"limit": _NO_LIMIT})
                total += removed
        return total

    def obliterate(self, *, force: bool = False) -> None:
        """Deletes the queue with all its jobs.

        Parameters:
          force: whether to delete active jobs, too.

        Raises:
          QueueBusy: when jobs are active, unless `force` is True.
        """
        manage.obliterate(self.handle, force=force)

    def remove_orphans(self, limit: int = 0) -> int:
        """Removes jobs that are in no state, so that no worker gets them, as removeOrphanedJobs of BullMQ does.

        A crash of another program, or deleted keys, can leave such jobs. All keys of Redis are scanned, in short calls.
        Jobs that change their state meanwhile stay.

        Parameters:
          limit: maximum number of jobs; 0: all.

        Returns:
          How many jobs were removed.

        Raises:
          OptionError: for a wrong number.
        """
        return leftovers.remove_all_orphans(self.handle, limit)

    def sweep_objects(self, older_than_ms: int = SWEEP_AFTER_MS) -> Swept:
        """Deletes objects in `offload_to` that no job of the queue has any more, and no write that is not finished.

        Redis and workers of Node remove jobs without them. The keys of the queue, or of all its shards, are scanned in
        short calls.

        Parameters:
          older_than_ms: minimum age of deleted objects, ms: more than it takes to add a job whose payload is stored.

        Returns:
          How many objects were kept, and deleted.

        Raises:
          OptionError: for a queue without `offload_to`, one that does not exist, one with shards on several servers,
            and a wrong age.
        """
        return leftovers.sweep(self.handle, older_than_ms)

    def recover(self) -> list[WriteRecord]:
        """Finishes registered writes of Spark whose driver died, oldest first.

        Returns:
          Records of the finished writes.

        Raises:
          StagedDataLost: when staged jobs of a write are gone from Redis.
        """
        return roll_forward.recover(self.handle)


def _swept(
    handle: QueueHandle, verb: str, store: StateKey, position: bytes, args: Mapping[str, Any]
) -> tuple[bytes, Any]:
    """One call that removes jobs of a state from a position on; returns the next position, and what was removed."""
    sweep = {"kind": store.kind, "position": position, "size": REMOVE_SIZE}
    with objects.deleting_objects(handle, partial(objects.swept_ids, handle, store, position)):
        reached, removed = handle.run_once(verb, {**args, **sweep}, state=handle.keys[store.key])
    return manage.position_of(reached), removed
