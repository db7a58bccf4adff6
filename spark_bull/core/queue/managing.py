"""The methods of BullQueue that change a queue as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from spark_bull.core.model.jobs import QueueLimits, WriteRecord
from spark_bull.core.model.limits import Group
from spark_bull.core.queue.adding import OpenQueue
from spark_bull.core.queue.dispatch.roll_forward import recover
from spark_bull.core.queue.handle.admission import close_intake, is_intake_open, open_intake
from spark_bull.core.queue.manage import limits, manage
from spark_bull.core.queue.manage.leftovers import SWEEP_AFTER_MS, Swept, remove_all_orphans, sweep
from spark_bull.core.queue.manage.manage import free
from spark_bull.core.short_errors import short_errors


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
        return free(self.handle, deduplication_id, job_id)

    def pause(self) -> None:
        """Keeps workers from claiming more jobs; active jobs continue."""
        manage.pause(self.handle)

    def resume(self) -> None:
        """Lets workers claim jobs again."""
        manage.resume(self.handle)

    def is_paused(self) -> bool:
        """Returns whether the queue is paused for all workers.

        Returns:
          True if it is paused.
        """
        return manage.is_paused(self.handle)

    def close_intake(self) -> None:
        """Lets the queue accept no more jobs and schedulers: writes of Spark and this class raise IntakeClosed.

        Workers go on.

        Producers of Node do not know of it, and still add jobs. Jobs that workers add, follow-up jobs and the next jobs
        of schedulers, and the jobs of registered writes are added. It is no pause, which stops workers, and
        not `close()`, which closes connections. It lasts until `open_intake`, even if the queue is obliterated.
        """
        close_intake(self.handle)

    def open_intake(self) -> None:
        """Lets the queue accept jobs again."""
        open_intake(self.handle)

    def is_intake_open(self) -> bool:
        """Returns whether the queue accepts jobs.

        Returns:
          False from `close_intake` to `open_intake`.
        """
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
        limits.set_limits(self.handle, concurrency=concurrency, max=max, duration_ms=duration_ms)

    def remove_limits(self, *, concurrency: bool = True, rate: bool = True) -> None:
        """Removes limits of the queue, as removeGlobalConcurrency and removeGlobalRateLimit do (BullMQ).

        Parameters:
          concurrency: whether to remove the limit of active jobs.
          rate: whether to remove the rate limit, `max` and `duration_ms`.

        Raises:
          DialectError: for a queue of Bull.
        """
        limits.remove_limits(self.handle, concurrency=concurrency, rate=rate)

    def limits(self) -> QueueLimits:
        """Reads the limits of the queue over all its workers (BullMQ).

        Returns:
          The limits.

        Raises:
          DialectError: for a queue of Bull.
        """
        return limits.limits(self.handle)

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
        limits.rate_limit(self.handle, duration_ms)

    def remove_rate_limit(self) -> None:
        """Ends what `rate_limit` has begun, and the current period of a rate limit, as removeRateLimitKey (BullMQ).

        A waiting worker of Spark looks again within 10 s.

        Raises:
          DialectError: for a queue of Bull.
        """
        limits.remove_rate_limit(self.handle)

    def set_group_limit(
        self,
        group: str,
        *,
        concurrency: int | None = None,
        max: int | None = None,
        duration_ms: int | None = None,
    ) -> None:
        """Sets limits of one group of jobs, for the workers of Spark that have `group`. Its other limits stay.

        Parameters:
          group: name of the group.
          concurrency: maximum number of its jobs that run at the same time.
          max: maximum number of its jobs that start in `duration_ms`.
          duration_ms: the period of `max`, ms.

        Raises:
          OptionError: for an argument that is wrong, `max` without `duration_ms`, and a queue without groups.
        """
        limits.set_group_limit(self.handle, group, concurrency=concurrency, max=max, duration_ms=duration_ms)

    def remove_group_limit(self, group: str, *, concurrency: bool = True, rate: bool = True) -> None:
        """Removes limits of one group of jobs: then the workers' limits hold.

        Parameters:
          group: name of the group.
          concurrency: whether to remove the limit of running jobs.
          rate: whether to remove the rate limit, `max` and `duration_ms`.

        Raises:
          OptionError: for a queue without groups.
        """
        limits.remove_group_limit(self.handle, group, concurrency=concurrency, rate=rate)

    def pause_group(self, group: str) -> None:
        """Keeps workers of Spark from starting jobs of a group, until it is resumed; its active jobs continue.

        Parameters:
          group: name of the group.

        Raises:
          OptionError: for a queue without groups.
        """
        limits.pause_group(self.handle, group)

    def resume_group(self, group: str) -> None:
        """Lets workers start jobs of a group again.

        Parameters:
          group: name of the group.

        Raises:
          OptionError: for a queue without groups.
        """
        limits.resume_group(self.handle, group)

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
        return manage.clean(self.handle, grace_ms, limit, state)

    def drain(self, *, delayed: bool = False) -> int:
        """Removes all jobs that wait for a worker; a paused queue stays paused.

        Parameters:
          delayed: whether to remove delayed jobs, too.

        Returns:
          How many jobs were removed.
        """
        return manage.drain(self.handle, delayed=delayed)

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
        return remove_all_orphans(self.handle, limit)

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
        return sweep(self.handle, older_than_ms)

    def recover(self) -> list[WriteRecord]:
        """Finishes registered writes of Spark whose driver died, oldest first.

        Returns:
          Records of the finished writes.

        Raises:
          StagedDataLost: when staged jobs of a write are gone from Redis.
        """
        return recover(self.handle)
