"""The job that a processor receives: its fields, and methods that report progress, log rows and change data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_bull.dialects.base import json_text
from spark_bull.job_json import json_or_text, opts_of, payload_of
from spark_bull.outcomes import ClaimedJob
from spark_bull.queue.handle import QueueHandle
from spark_bull.queue.report import add_log, update_data, update_progress
from spark_bull.worker.outcome_policy import job_options

_UNSET: Any = object()


class RunningJob:
    """A claimed job, as a processor receives it. Times are ms since 1970.

        def processor(job):
            job.update_progress(50)
            return {"sent": send(job.data["to"])}

    The value that the processor returns (anything that JSON can hold) becomes `returnvalue`; an exception fails the
    attempt. Instances are created by a Worker.

    Parameters:
      claimed: the fields of the job.
      handle: its queue.
    """

    __slots__ = ("_data", "_discarded", "_handle", "claimed")

    def __init__(self, claimed: ClaimedJob, handle: QueueHandle) -> None:
        self.claimed = claimed
        self._handle = handle
        self._data = _UNSET
        self._discarded = False

    def __repr__(self) -> str:
        return f"RunningJob(queue={self.queue!r}, id={self.claimed.id!r}, attempt={self.attempts_made + 1})"

    @property
    def handle(self) -> QueueHandle:
        """The queue, as the worker accesses it."""
        return self._handle

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return self._handle.keys.queue

    @property
    def id(self) -> str:
        """Id of the job."""
        return self.claimed.id

    @property
    def name(self) -> str | None:
        """Name of the job; None in dialects without job names."""
        return self.claimed.name

    @property
    def data(self) -> Any:
        """The payload, parsed from JSON. Raises JobDamaged if it is not JSON."""
        if self._data is _UNSET:
            self._data = payload_of(self.claimed.id, self.claimed.data, self.claimed.opts)
        return self._data

    @property
    def data_text(self) -> str:
        """The payload as stored in Redis: JSON text."""
        return self.claimed.data

    @property
    def opts(self) -> Mapping[str, Any]:
        """The job's options, as the Node library stores them."""
        return opts_of(self.claimed.id, self.claimed.opts)

    @property
    def timestamp(self) -> int:
        """Time at which the job was added, ms since 1970."""
        return self.claimed.timestamp

    @property
    def attempts_made(self) -> int:
        """Number of attempts that ended before this one."""
        return self.claimed.attempts_made

    @property
    def attempts_started(self) -> int:
        """Number of attempts that have started, including this one; BullMQ only."""
        return self.claimed.attempts_started

    @property
    def priority(self) -> int:
        """Priority of the job: 1 is the highest, 0 means none."""
        return self.claimed.priority

    @property
    def progress(self) -> Any:
        """The last progress reported by this or an earlier attempt; a string if it is not JSON."""
        return json_or_text(self.claimed.progress)

    @property
    def timeout(self) -> int:
        """Maximum duration of the job by its option `timeout`, ms; 0: none."""
        return job_options(self.claimed.opts).timeout

    @property
    def parent_key(self) -> str | None:
        """Redis key of the parent job; BullMQ only."""
        return self.claimed.parent_key

    def update_progress(self, progress: Any) -> None:
        """Stores the job's progress and publishes it as an event.

        Parameters:
          progress: a number, or anything that JSON can hold.

        Raises:
          JobMissing: if the job was removed.
          OptionError: if JSON cannot hold the value.
          ConnectionLost: if Redis cannot be reached.
        """
        update_progress(self._handle, self.claimed.id, json_text("progress", progress))

    def log(self, row: str) -> int:
        """Appends a row to the job's log.

        Parameters:
          row: the text.

        Returns:
          Number of rows in the log.

        Raises:
          JobMissing: if the job was removed.
          ConnectionLost: if Redis cannot be reached.
        """
        return add_log(self._handle, self.claimed.id, str(row), job_options(self.claimed.opts).log_limit)

    def update_data(self, data: Any) -> None:
        """Replaces the payload, including that of later attempts.

        Parameters:
          data: anything that JSON can hold.

        Raises:
          JobMissing: if the job was removed.
          OptionError: if JSON cannot hold the value.
          ConnectionLost: if Redis cannot be reached.
        """
        update_data(self._handle, self.claimed.id, json_text("data", data))
        self._data = data

    def discard(self) -> None:
        """Discards the remaining attempts: if this attempt fails, the job fails."""
        self._discarded = True

    @property
    def discarded(self) -> bool:
        """Whether discard() was called."""
        return self._discarded
