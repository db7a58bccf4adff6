"""The callback of a write: a job of BullMQ that runs once, when all jobs of the write have ended.

It is their parent, and is added before the first of them. Its dependencies have pending members, which stand for the
jobs that are still to be added; so children that end early never start it. Members are removed once the jobs are added.
Each step can be repeated, by any process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from spark_bull.core.dialects.encode.chunks import pack
from spark_bull.core.dialects.encode.codec import encode
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.keys import QueueKeys
from spark_bull.core.queue.dispatch import verbs
from spark_bull.core.queue.handle.handle import QueueHandle


@dataclass(frozen=True)
class CallbackJob:
    """The job of a callback: its queue and the queue's dialect, its name, payload (JSON text) and options."""

    queue: str
    dialect: str
    name: str | None
    data: str
    opts: Mapping[str, Any]

    def packed(self, handle: QueueHandle) -> bytes:
        """The job as a chunk. Raises OptionError or DialectError for a property that it can't have."""
        rows: dict[str, list[Any]] = {"data": [self.data], "name": [self.name], "opts": [self.opts]}
        return pack(encode(handle.dialect, rows, {}, range(1)))


@dataclass(frozen=True)
class Callback:
    """The callback of one write. `pending`: members that hold it back.

    With exactly-once delivery there is one for each queue, else one for all.
    """

    job: CallbackJob
    id: str
    pending: tuple[str, ...]

    @property
    def text(self) -> str:
        """JSON text."""
        return json.dumps(asdict(self))

    def member_of(self, keys: QueueKeys) -> str:
        """The member of `pending` that stands for the jobs of a queue."""
        own = keys.pending(self.id)
        return own if own in self.pending else self.pending[0]


def callback_of(text: str | bytes) -> Callback:
    """The callback whose `text` this is."""
    fields = json.loads(text)
    return Callback(CallbackJob(**fields["job"]), fields["id"], tuple(fields["pending"]))


def callback_id(*write: str | int | None) -> str:
    """The id of the callback of a write, which `write` identifies also when it is repeated."""
    return str(uuid5(NAMESPACE_OID, json.dumps(write)))


def _handle_of(handle: QueueHandle, callback: Callback) -> QueueHandle:
    keys = QueueKeys(callback.job.queue, handle.keys.prefix)
    return replace(handle, keys=keys, dialect=DIALECTS[callback.job.dialect])


def open_callback(handle: QueueHandle, callback: Callback, write: str | None = None) -> None:
    """Adds a callback, unless it was added before. write: key of the registered write, if any."""
    own = _handle_of(handle, callback)
    verbs.open_callback(own, callback.id, callback.job.packed(own), callback.pending, write=write)


def close_callback(handle: QueueHandle, callback: Callback, write: str) -> None:
    """Removes the member of `pending` for the jobs of the queue, as they are added; the callback can start."""
    member = callback.member_of(handle.keys)
    verbs.close_callback(_handle_of(handle, callback), callback.id, member, write=write)


def drop_callback(handle: QueueHandle, callback: Callback) -> bool:
    """Removes the callback of a failed write, unless it has children. Returns whether there is none."""
    return verbs.drop_callback(_handle_of(handle, callback), callback.id, callback.pending)
