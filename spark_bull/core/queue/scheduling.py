"""The methods of BullQueue for job schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spark_bull.core.dialects.encode.codec import data_text
from spark_bull.core.error_text import short_errors
from spark_bull.core.late import late
from spark_bull.core.queue.adding import Adding

if TYPE_CHECKING:
    from spark_bull.core.model.queues import Scheduler
    from spark_bull.core.queue.schedule import schedulers
else:
    (schedulers,) = late("schedulers", of="spark_bull.core.queue.schedule")


@short_errors
class Scheduling(Adding):
    """Creates, changes, lists and removes job schedulers."""

    def upsert_scheduler(
        self,
        scheduler_id: str,
        *,
        every: int | str | None = None,
        pattern: str | None = None,
        tz: str | None = None,
        name: str | None = None,
        data: Any = None,
        limit: int | None = None,
        offset: int | str | None = None,
        start_date: int | None = None,
        end_date: int | None = None,
        opts: Mapping[str, Any] | None = None,
    ) -> int:
        """Creates or changes a job scheduler, which adds a job again and again, as upsertJobScheduler does.

        Its next job is added at once, and each further one when a worker, Node's or Spark's, starts the one before. In
        Bull 3 and 4 it is a job with the option `repeat`. The queue's defaults also apply to its jobs, except for
        delays and `deduplication`.

        Parameters:
          scheduler_id: id of the job scheduler; one that exists is changed. Without ':' in Bull.
          every: interval, ms or a duration of ISO 8601 such as PT15M; instead of `pattern`. The first job of BullMQ
            runs at once unless `start_date` or `offset` is given, Bull's at the next multiple of the interval.
          pattern: cron pattern of 5 fields, or 6 with seconds first; instead of `every`.
          tz: time zone of the pattern, such as Europe/Berlin; default: the zone where the next time is computed.
          name: name of the jobs; default: the queue's default, else the id (BullMQ).
          data: payload of the jobs: anything JSON can hold, or RawJson; default: {}.
          limit: maximum number of jobs.
          offset: by how much the times are shifted from multiples of `every`, as `every`; BullMQ only.
          start_date: no job runs before, ms since 1970; in Bull for patterns only.
          end_date: no more jobs are added after, ms since 1970.
          opts: other options of the Node library for the jobs, by its own names.

        Returns:
          When its next job is due, ms since 1970.

        Raises:
          OptionError: for a value that is wrong; nothing was changed.
          DialectError: for a queue of Bull 1 or 2, and a property that the dialect lacks.
          IntakeClosed: when the queue accepts no jobs; see `close_intake`.
          WrongState: when a job with the id of its next one exists; nothing was changed.
        """
        row = {
            "id": scheduler_id,
            "every": every,
            "pattern": pattern,
            "tz": tz,
            "name": name,
            "data": None if data is None else data_text(data),
            "limit": limit,
            "offset": offset,
            "startDate": start_date,
            "endDate": end_date,
            "opts": opts,
        }
        return schedulers.upsert(self.handle, row, self._defaults)

    def schedulers(self) -> list[Scheduler]:
        """Lists the job schedulers of the queue.

        Returns:
          The job schedulers, those that are due first at the beginning.

        Raises:
          DialectError: for a queue of Bull 1 or 2.
        """
        return list(schedulers.schedulers(self.handle))

    def scheduler(self, scheduler_id: str) -> Scheduler | None:
        """Reads one job scheduler.

        Parameters:
          scheduler_id: id of the job scheduler.

        Returns:
          The job scheduler, or None when there is none of this id.

        Raises:
          DialectError: for a queue of Bull 1 or 2.
        """
        return schedulers.scheduler(self.handle, scheduler_id)

    def run_scheduler(self, scheduler_id: str) -> str:
        """Adds a job like the next one of a job scheduler, which runs at once; the next one still runs at its time.

        Parameters:
          scheduler_id: id of the job scheduler.

        Returns:
          The id of the job.

        Raises:
          JobMissing: when there is no such job scheduler, or its next job is gone.
          DialectError: for a queue of Bull 1 or 2.
        """
        return self.add_many([schedulers.job_of(self.handle, scheduler_id)]).ids[0]

    def remove_scheduler(self, scheduler_id: str) -> bool:
        """Removes a job scheduler and its next job, as removeJobScheduler does. A job that waits for a worker stays.

        Parameters:
          scheduler_id: id of the job scheduler.

        Returns:
          Whether it existed.

        Raises:
          DialectError: for a queue of Bull 1 or 2.
        """
        return schedulers.remove(self.handle, scheduler_id)
