"""The methods of BullQueue that change single jobs, or many jobs by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from spark_bull.core.dialects.base import json_text
from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import DialectError, JobLockLost, WrongState, check_count
from spark_bull.core.late import late
from spark_bull.core.model.jobs import Priority, RawJson
from spark_bull.core.queue.adding import OpenQueue

if TYPE_CHECKING:
    from spark_bull.core.model import read_jobs
    from spark_bull.core.model.read_jobs import Change, Changed
    from spark_bull.core.queue.handle import report
    from spark_bull.core.queue.manage import cancel, manage
else:
    (read_jobs,) = late("read_jobs", of="spark_bull.core.model")
    (report,) = late("report", of="spark_bull.core.queue.handle")
    cancel, manage = late("cancel", "manage", of="spark_bull.core.queue.manage")


@short_errors
class Changing(OpenQueue):
    """Changes jobs."""

    def manage(self, changes: Iterable[Change]) -> Iterator[Changed]:
        """Changes many jobs, `chunk_size` per script call; write a DataFrame with mode=manage to do so exactly once.

        Parameters:
          changes: the changes, which are made in this order while the result is read.

        Returns:
          What has become of each change, in order. Jobs that do not exist, are locked by a worker or are in another
          state are left alone.

        Raises:
          OptionError: for a change with a wrong or missing value.
          DialectError: for an action that the dialect lacks.
        """
        return manage.change_jobs(self.handle, changes, self._options.chunk_size, self._options.chunk_bytes)

    def change_delay(self, job_id: str, delay_ms: int) -> None:
        """Delays a job that waits, or changes when a delayed job runs.

        `promote` moves it back to the waiting ones.

        Parameters:
          job_id: id of the job.
          delay_ms: ms from now.

        Raises:
          OptionError: for a wrong delay.
          JobMissing: when there is no such job.
          WrongState: when it neither waits nor is delayed.
        """
        manage.change_job(self.handle, read_jobs.Change(job_id, "delay", delay=delay_ms))

    def change_priority(self, job_id: str, priority: Priority, *, lifo: bool = False) -> None:
        """Changes the priority of a job; one that waits takes its new place.

        Parameters:
          job_id: id of the job.
          priority: a number, of which 1 is the highest and 0 is none, or a name: critical, high, medium, normal, low.
          lifo: whether it is the first one of its priority.

        Raises:
          OptionError: for a wrong priority.
          JobMissing: when there is no such job.
          DialectError: for a queue of Bull 1 or 2, whose jobs have no priority.
        """
        manage.change_job(self.handle, read_jobs.Change(job_id, "prioritize", priority=priority, lifo=lifo))

    def update_data(self, job_id: str, data: Any) -> None:
        """Replaces the payload of a job.

        Parameters:
          job_id: id of the job.
          data: the payload: anything JSON can hold, or RawJson.

        Raises:
          JobMissing: when there is no such job.
        """
        manage.change_job(
            self.handle, read_jobs.Change(job_id, "update", data=RawJson("null") if data is None else data)
        )

    def update_progress(self, job_id: str, progress: Any) -> None:
        """Stores the progress of a job and publishes it as an event, as updateJobProgress of BullMQ.

        Parameters:
          job_id: id of the job.
          progress: a number, or anything that JSON can hold.

        Raises:
          JobMissing: when there is no such job.
          WrongState: when it has a checkpoint, which is a part of its progress.
          OptionError: for a value that JSON can't hold.
        """
        try:
            report.update_progress(self.handle, job_id, json_text("progress", progress))
        except JobLockLost:
            raise WrongState(
                f"expected job {job_id} of queue {self.name} to have no checkpoint, it has one, which is a part of its "
                "progress: let the job change it",
                queue=self.name,
                job_id=job_id,
            ) from None

    def log(self, job_id: str, row: str, keep: int = 0) -> int:
        """Adds a row to the log of a job, as addJobLog of BullMQ; `logs` reads them.

        Parameters:
          job_id: id of the job.
          row: the row.
          keep: number of last rows that stay; 0: all.

        Returns:
          The number of rows.

        Raises:
          JobMissing: when there is no such job.
        """
        return report.add_log(self.handle, job_id, row, keep)

    def clear_logs(self, job_id: str, keep: int = 0) -> None:
        """Removes rows of the log of a job, as clearLogs of BullMQ.

        Parameters:
          job_id: id of the job.
          keep: number of last rows that stay; 0: none.

        Raises:
          OptionError: for a wrong number.
          JobMissing: when there is no such job.
        """
        check_count("keep", keep)
        logs = self.handle.keys.logs(job_id)
        exists, _ = self.handle.connection.pipeline(
            [("EXISTS", self.handle.keys.job(job_id)), ("LTRIM", logs, -keep, -1) if keep else ("DEL", logs)]
        )
        if not exists:
            raise report.job_missing(self.handle, job_id)

    def fail(self, job_id: str, reason: str) -> None:
        """Fails a job that waits or is delayed, as if a worker had claimed it, without a further attempt.

        Parameters:
          job_id: id of the job.
          reason: its `failedReason`.

        Raises:
          JobMissing: when there is no such job.
          JobLocked: when it is locked by a worker.
          WrongState: when it has finished, waits for children, or is the next job of a job scheduler.
        """
        manage.change_job(self.handle, read_jobs.Change(job_id, "fail", failed_reason=reason))

    def complete(self, job_id: str, returnvalue: Any = None) -> None:
        """Completes a job that waits or is delayed, as if a worker had processed it.

        Parameters:
          job_id: id of the job.
          returnvalue: its result: anything JSON can hold, or RawJson.

        Raises:
          JobMissing: when there is no such job.
          JobLocked: when it is locked by a worker.
          WrongState: when it has finished, has unfinished or failed children, or is the next job of a job scheduler.
        """
        manage.change_job(self.handle, read_jobs.Change(job_id, "complete", returnvalue=returnvalue))

    def move(self, job_id: str, to: str) -> None:
        """Moves a job to another queue, where it is a new one with the same name, payload and options.

        It keeps its id, unless that is a number. Attempts, results, logs and the deduplication id are not kept.

        Parameters:
          job_id: id of the job.
          to: name of the other queue, of the same dialect.

        Raises:
          OptionError: for a queue that no script can reach together with this one.
          DialectError: for a queue of another dialect.
          JobMissing: when there is no such job.
          JobLocked: when it is locked by a worker.
          WrongState: when the other queue has a job of this id; when it has a parent or children, or is the next job
            of a job scheduler.
        """
        manage.change_job(self.handle, read_jobs.Change(job_id, "move", to=to))

    def retry(self, job_id: str, state: str = "failed", *, reset_attempts: bool = False) -> None:
        """Moves a finished job back to the waiting ones.

        Parameters:
          job_id: id of the job.
          state: the state of the job: failed, or (BullMQ) completed.
          reset_attempts: whether its attempts count from 0 again.

        Raises:
          JobMissing: when there is no such job.
          JobLocked: when it is locked by a worker.
          WrongState: when it is in another state.
          DialectError: for a state from which the dialect has no retry.
        """
        allowed = self.handle.dialect.retryable_states
        if state not in allowed:
            raise DialectError(
                f"expected `state` to be one that {self.protocol} retries from ({', '.join(allowed)}), got: {state!r}"
            )
        manage.change_job(self.handle, read_jobs.Change(job_id, "retry", state=state, reset_attempts=reset_attempts))

    def promote(self, job_id: str) -> None:
        """Moves a delayed job to the waiting ones.

        Parameters:
          job_id: id of the job.

        Raises:
          JobMissing: when there is no such job.
          WrongState: when it is not delayed.
        """
        manage.change_job(self.handle, read_jobs.Change(job_id, "promote"))

    def cancel(self, job_id: str, reason: str | None = None) -> None:
        """Asks the Spark worker that processes a job to end it: the job fails without a further attempt.

        The worker reads the request within a second. A job that ends before that keeps its outcome. The job fails with
        the reason `cancelled`, or `cancelled: <reason>`.

        Parameters:
          job_id: id of the job.
          reason: why it is cancelled.

        Raises:
          JobMissing: when there is no such job.
          WrongState: when it is not active, or not held by a Worker: jobs of Node workers, and of queries with
            mode=claim, can't be cancelled.
        """
        cancel.request_cancel(self.handle, job_id, reason)

    def cancel_all(self, reason: str | None = None) -> int:
        """Asks the Spark workers of the queue to end all jobs that they process now, as `cancel` does for one.

        Jobs of Node workers, and of queries with mode=claim, go on. Workers claim further jobs, unless the queue is
        paused.

        Parameters:
          reason: why they are cancelled.

        Returns:
          How many jobs are to be cancelled; those that end before keep their outcomes.

        Raises:
          OptionError: for a reason that is no text.
        """
        return cancel.request_cancel_all(self.handle, reason)

    def remove(self, job_id: str, *, with_children: bool = True) -> None:
        """Removes a job and its logs. A parent (BullMQ) that waited for this job alone starts.

        Parameters:
          job_id: id of the job.
          with_children: whether to remove its children (BullMQ), too.

        Raises:
          JobMissing: when there is no such job.
          JobLocked: when it or one of its children is locked by a worker.
          WrongState: when it is the next job of a job scheduler.
        """
        manage.remove(self.handle, job_id, with_children=with_children, chunk_size=self._options.chunk_size)

    def remove_child_dependency(self, job_id: str) -> bool:
        """Removes a job from the children of its parent, which starts if it waited for this job alone (BullMQ).

        Parameters:
          job_id: id of the child.

        Returns:
          Whether it was an unfinished child.

        Raises:
          JobMissing: when there is no such job, or its parent is gone.
          DialectError: for a queue of Bull.
        """
        self.handle.dialect.require("flows")
        manage.check_job_id(self.handle, job_id)
        job = self.handle.keys.job(job_id)
        result, *parent = self.handle.run_once("remove_child_dependency", {}, job=job)
        if result == b"missing":
            raise report.job_missing(self.handle, job_id)
        if result == b"orphan":
            raise report.job_missing(self.handle, job_id, f"the parent {parent[0].decode()} of job")
        return bool(result == b"done")

    def remove_unprocessed_children(self, job_id: str) -> int:
        """Removes those children of a job that have not ended, and their children (BullMQ).

        The job starts if it waited for these alone. Locked jobs, which are usually active, stay.

        Parameters:
          job_id: id of the parent.

        Returns:
          How many jobs were removed.

        Raises:
          JobMissing: when there is no such job.
          DialectError: for a queue of Bull.
        """
        return manage.remove_unprocessed_children(self.handle, job_id, chunk_size=self._options.chunk_size)
