"""The options `onFinish` and `onFailure`: a job that runs once, when all jobs of a write have ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final

from spark_bull.core.dialects.base import json_text
from spark_bull.core.dialects.deduplication import DEDUPLICATION
from spark_bull.core.dialects.encode.chunks import EncodedJobs
from spark_bull.core.dialects.parents import PARENT
from spark_bull.core.errors import OptionError, did_you_mean, expected
from spark_bull.core.keys import QueueKeys, hash_tag
from spark_bull.core.model.columns import listed
from spark_bull.core.options.parse import Options
from spark_bull.core.queue.dispatch.callbacks import Callback, CallbackJob, callback_id
from spark_bull.core.queue.dispatch.writes import Identity
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle
from spark_bull.spark.dispatch.rows import RowPlan

_MEMBERS: Final = ("queue", "name", "data", "opts")
#: Options of the Node library that a callback can't have, and why.
_REFUSED_OPTS: Final = {
    "jobId": "the id is made from the id of the write, as a write has one callback",
    PARENT: "a callback is no child",
    DEDUPLICATION: "a parent can't be deduplicated",
}


@dataclass(frozen=True)
class OnFinish:
    """The job of the option `onFinish`. handle: its queue. on_failure: the option `onFailure`. written: the option
    `queue`, as an application can write to several queues with one version; None: a column names the queues.
    """

    handle: QueueHandle
    job: CallbackJob
    on_failure: str
    written: str | None

    def callback(self, write_id: str, identity: Identity | None, queues: Iterable[str] | None = None) -> Callback:
        """The callback of a write with exactly-once delivery to these queues, or, with None, of another write."""
        job_id = callback_id(write_id) if identity is None else callback_id(self.written, *astuple(identity))
        keys = self.handle.keys
        pending = [keys] if queues is None else [QueueKeys(queue, keys.prefix) for queue in queues]
        return Callback(self.job, job_id, tuple(one.pending(job_id) for one in pending))

    def children_defaults(self, callback: Callback) -> dict[str, Any]:
        """The defaults of rows that make their jobs children of a callback."""
        return {PARENT: {"queue": self.job.queue, "id": callback.id, "onFailure": self.on_failure}}

    def check_rows(self, rows: RowPlan, options: Options) -> None:
        """Raises OptionError for columns and options that children can't have."""
        if rows.unique_by or DEDUPLICATION in rows.columns or options[DEDUPLICATION] is not None:
            raise OptionError(
                "expected one of `onFinish` and deduplication ids, got both: a child can't be deduplicated"
            )
        if PARENT in rows.columns:
            raise OptionError(f"expected one of `onFinish` and a column `{PARENT}`, got both: a job has one parent")

    def check_queue(self, handle: QueueHandle) -> None:
        """Raises DialectError or OptionError for a queue whose jobs can't be children of the callback."""
        handle.dialect.require("flows", f"`onFinish` of a write to queue {handle.keys.queue}")
        keys, own = handle.keys, self.handle.keys
        if hash_tag(keys.prefix, keys.queue) != hash_tag(own.prefix, own.queue):
            raise OptionError(
                f"expected the queue of `onFinish` to have the hash tag of queue {keys.queue}, as one script writes to "
                f"both, got: {own.queue!r}"
            )

    def check_children(self, jobs: EncodedJobs, callback: Callback, numbers: Iterable[int]) -> None:
        """Raises OptionError for a row with another parent."""
        if jobs.parent_id == callback.id:
            return
        for number, parent_id in zip(numbers, listed(jobs.parent_id, jobs.n), strict=True):
            if parent_id != callback.id:
                raise OptionError(
                    f"row {number}: expected no `parent`, as all jobs of the write are children of `onFinish`, got: "
                    f"{parent_id!r}; leave one out"
                )


def on_finish_of(options: Options) -> OnFinish | None:
    """Reads the options. Raises OptionError for a wrong member, DialectError if the queue is not of BullMQ."""
    given: Mapping[str, Any] | None = options["onFinish"]
    if given is None:
        return None
    for member in given:
        if member not in _MEMBERS:
            raise OptionError(f"unknown member `{member}` of `onFinish`{did_you_mean(member, _MEMBERS)}")
    queue = given.get("queue", options["queue"])
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
    # Whoever finishes the write adds the job, maybe without the key.
    data = handle.kept("data", json_text("onFinish.data", given.get("data", {})))
    job = CallbackJob(queue, handle.dialect.name, name, data, opts)
    try:
        job.packed(handle)
    except OptionError as error:
        raise OptionError(f"option `onFinish`: {error}") from None
    return OnFinish(handle, job, options["onFailure"] or "wait", options["queue"])
