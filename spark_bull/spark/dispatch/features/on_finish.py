"""The options `onFinish` and `onFailure`: a job that runs once, when all jobs of a write have ended."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_bull.core.dialects.base import json_text
from spark_bull.core.dialects.encode.chunks import EncodedJobs, listed
from spark_bull.core.dialects.encode.flows import Flows
from spark_bull.core.dialects.terms import DEDUPLICATION, PARENT
from spark_bull.core.errors import OptionError, did_you_mean, expected
from spark_bull.core.keys import QueueKeys, hash_tag
from spark_bull.core.options.table import WriteOptions
from spark_bull.core.queue.dispatch.roll_forward import Callback, CallbackJob, callback_id, drop_callback, open_callback
from spark_bull.core.queue.dispatch.write_records import Fields, Identity, read_record
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle
from spark_bull.spark.dispatch.feature import (
    AddTerms,
    Plan,
    TaskRows,
    TaskWrite,
    WholeWrite,
    WriteFeature,
    WriteRequest,
)
from spark_bull.spark.staging.plan import CommitMessage, TaskPart

log = logging.getLogger("spark_bull")

_MEMBERS: Final = ("queue", "name", "data", "opts")
#: Options of the Node library that a callback can't have, and why.
_REFUSED_OPTS: Final = {
    "jobId": "the id is made from the id of the write, as a write has one callback",
    PARENT: "a callback is no child",
    DEDUPLICATION: "a parent can't be deduplicated",
}


@dataclass(frozen=True)
class OnFinish(WriteFeature):
    """The job of the option `onFinish`. handle: its queue. on_failure: the option `onFailure`. written: the option
    `queue`, as an application can write to several queues with one version; None: a column names the queues.
    """

    handle: QueueHandle
    job: CallbackJob
    on_failure: str
    written: str | None

    @classmethod
    def planned(cls, request: WriteRequest) -> OnFinish | None:
        options, rows = request.options, request.rows
        if options.on_finish is None:
            return None
        if rows.unique_by or DEDUPLICATION in rows.columns or options.deduplication is not None:
            raise OptionError(
                "expected one of `onFinish` and deduplication ids, got both: a child can't be deduplicated"
            )
        if PARENT in rows.columns:
            raise OptionError(f"expected one of `onFinish` and a column `{PARENT}`, got both: a job has one parent")
        return cls(*_job_of(options.on_finish, options), options.on_failure or "wait", options.queue)

    def _callback(self, write_id: str, identity: Identity | None, queues: Iterable[str] | None = None) -> Callback:
        """The callback of a write with exactly-once delivery to these queues, or, with None, of another write."""
        job_id = callback_id(write_id) if identity is None else callback_id(self.written, *identity)
        keys = self.handle.keys
        pending = [keys] if queues is None else [QueueKeys(queue, keys.prefix) for queue in queues]
        return Callback(self.job, job_id, tuple(one.pending(job_id) for one in pending))

    def _id_in(self, task: TaskWrite) -> str:
        return self._callback(task.plan.write_id, task.identity).id

    def check(self, handle: QueueHandle) -> None:
        handle.dialect.require("flows", f"`onFinish` of a write to queue {handle.keys.queue}")
        keys, own = handle.keys, self.handle.keys
        if hash_tag(keys.prefix, keys.queue) != hash_tag(own.prefix, own.queue):
            raise OptionError(
                f"expected the queue of `onFinish` to have the hash tag of queue {keys.queue}, as one script writes to "
                f"both, got: {own.queue!r}"
            )

    def defaults(self, task: TaskWrite) -> Mapping[str, Any]:
        """All jobs are children of the callback."""
        return {PARENT: {"queue": self.job.queue, "id": self._id_in(task), "onFailure": self.on_failure}}

    def encode(self, jobs: EncodedJobs, rows: TaskRows) -> EncodedJobs:
        self._check_parents(jobs, rows)
        return jobs._replace(parent_optional=True)

    def check_flows(self, flows: Flows, rows: TaskRows) -> None:
        self._check_parents(flows.groups[0].jobs, rows)
        flows.make_parents_optional()

    def _check_parents(self, jobs: EncodedJobs, rows: TaskRows) -> None:
        """Raises OptionError for a row with another parent."""
        own = rows.task.defaults[PARENT]["id"]
        if jobs.parent_id == own:
            return
        for number, parent_id in zip(rows.numbers, listed(jobs.parent_id, jobs.n), strict=True):
            if parent_id != own:
                raise OptionError(
                    f"row {number}: expected no `parent`, as all jobs of the write are children of `onFinish`, got: "
                    f"{parent_id!r}; leave one out"
                )

    def adding(self, task: TaskWrite) -> AddTerms:
        """The callback is there before the first child is visible."""
        open_callback(self.handle, self._callback(task.plan.write_id, task.identity))
        return {}

    def committing(self, plan: Plan, written: list[CommitMessage]) -> list[CommitMessage]:
        """A batch without rows and without the option `queue` is a write to the queue of the callback."""
        if plan.planned_queues or plan.is_stream or any(message.parts for message in written):
            return written
        part = TaskPart(queue=self.job.queue, dialect=self.job.dialect)
        return [*written, CommitMessage(plan.write_id, (part,), plan.started_on, plan.identity)]

    def record(self, write: WholeWrite) -> Fields:
        queues = write.queues if write.plan.exactly_once else None
        return {"callback": self._callback(write.id, write.identity, queues).text}

    def aborted(self, plan: Plan, written: Sequence[CommitMessage]) -> None:
        """Removes the callback of a failed write with at-least-once delivery, unless jobs were added.

        The callback of a registered write, of which only the commit has failed, stays for the process that finishes
        the write. A micro-batch without finished tasks is unknown here; its callback stays for the batch that repeats
        it.
        """
        if plan.exactly_once:
            return
        write_id = plan.write_id_in(written)
        queues = [part.queue for message in written for part in message.parts]
        first = plan.handle or self.handle
        handle = replace(first, keys=replace(first.keys, queue=queues[0])) if queues else first
        if read_record(handle, write_id) is not None:
            return
        callback = self._callback(write_id, plan.identity_in(written))
        if not drop_callback(self.handle, callback):
            log.warning(
                "job %s of queue %s (`onFinish`) can't start, as the write failed after it had added jobs. Repeat the "
                "write with the same checkpoint, or `txnAppId` and `txnVersion`; or remove the job",
                callback.id,
                callback.job.queue,
            )


def _job_of(given: Mapping[str, Any], options: WriteOptions) -> tuple[QueueHandle, CallbackJob]:
    """Reads the option. Raises OptionError for a wrong member, DialectError if the queue is not of BullMQ."""
    for member in given:
        if member not in _MEMBERS:
            raise OptionError(f"unknown member `{member}` of `onFinish`{did_you_mean(member, _MEMBERS)}")
    queue = given.get("queue", options.queue)
    if not isinstance(queue, str) or not queue:
        raise expected("onFinish.queue", "the name of a queue", queue)
    name, opts = given.get("name"), given.get("opts", {})
    if name is not None and not isinstance(name, str):
        raise expected("onFinish.name", "a text", name)
    if not isinstance(opts, Mapping):
        raise expected("onFinish.opts", "a JSON object", opts)
    for refused, reason in _REFUSED_OPTS.items():
        if refused in opts:
            raise OptionError(f"expected `onFinish.opts` without `{refused}`: {reason}")
    handle = open_handle(options, queue)
    handle.dialect.check_work(queue)
    handle.dialect.require("flows", f"`onFinish` with queue {queue}")
    # Any process can finish the write and add the job, maybe without the key.
    data = handle.sealed("data", json_text("onFinish.data", given.get("data", {})))
    job = CallbackJob(queue, handle.dialect.name, name, data, opts)
    try:
        job.packed(handle)
    except OptionError as error:
        raise OptionError(f"option `onFinish`: {error}") from None
    return handle, job
