"""Waits until a job has ended: by its event, and by a look at the job first, and whenever events may be lost.

One thread per queue reads the events for all calls that wait. A call is registered before it looks at the job: an end
that it does not see then is announced by an event that it gets.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, Final, NamedTuple

from spark_bull.core.clock import monotonic_s
from spark_bull.core.dialects.base import json_text
from spark_bull.core.dialects.events import ENDS, entry_event
from spark_bull.core.dialects.fields import NO_VALUE, Raw, text_of
from spark_bull.core.errors import JobFailed, JobMissing, SparkBullError, WaitTimeout, expected, restated
from spark_bull.core.model.job_json import json_or_text
from spark_bull.core.model.queues import QueueEvent
from spark_bull.core.queue.events.event_log import BEGIN, Position
from spark_bull.core.queue.events.events import QueueEvents
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.threads import DaemonThread

#: Interval at which a call looks at its job although no event has come, as Bull does: it may have been lost, and some
#: ways of removing a job cause none.
LOOK_AGAIN_S: Final = 5.0
#: How long the thread of a queue goes on after the last call has ended.
LINGER_S: Final = 5.0
#: For how long the event of a job that is gone may be under way (Bull).
UNDER_WAY_S: Final = 0.5
#: How many events are searched for the end of a job that is gone (BullMQ), and in how many calls.
_SEARCHED: Final = 1_000
_SEARCHES: Final = 10

#: Events after which a job has not ended.
_GOES_ON: Final = (b"added", b"waiting", b"active", b"delayed", b"waiting-children", b"stalled")

Inbox = SimpleQueue[QueueEvent | Exception]


class _JobEnd(NamedTuple):
    """How a job has ended: completed, failed or removed."""

    how: str
    returnvalue: Any = None
    reason: str | None = None


@dataclass
class _Call:
    """A call that waits. seen: the last event (BullMQ) before the job was looked at; earlier ones may be of another job
    that had the same id.
    """

    handle: QueueHandle
    job_id: str
    inbox: Inbox
    seen: Position = BEGIN


class _Listener:
    """The thread that reads the events of a queue, and the inboxes of the calls that wait, by job."""

    def __init__(self, handle: QueueHandle, key: object) -> None:
        self._key = key
        self._events = QueueEvents([handle], ends_only=True)
        self._inboxes: defaultdict[str, list[Inbox]] = defaultdict(list)
        self._lock = Lock()
        self._needed_at = monotonic_s()
        DaemonThread(f"wait-{handle.keys.queue}", self._run).start()

    def enter(self, job_id: str) -> Inbox:
        inbox: Inbox = SimpleQueue()
        with self._lock:
            self._inboxes[job_id].append(inbox)
        return inbox

    def leave(self, job_id: str, inbox: Inbox) -> None:
        with self._lock:
            self._inboxes[job_id].remove(inbox)
            if not self._inboxes[job_id]:
                del self._inboxes[job_id]
            self._needed_at = monotonic_s()

    def _run(self) -> None:
        try:
            with self._events:
                while not self._is_over():
                    self._hand_out(self._events.read(LINGER_S))
        except Exception as error:
            with _registry:
                _listeners.pop(self._key, None)
            with self._lock:
                for inboxes in self._inboxes.values():
                    for inbox in inboxes:
                        inbox.put(restated(error, str(error)) if isinstance(error, SparkBullError) else error)

    def _hand_out(self, events: list[QueueEvent]) -> None:
        with self._lock:
            for event in events:
                for inbox in self._inboxes.get(event.job_id or "", ()):
                    inbox.put(event)

    def _is_over(self) -> bool:
        """Ends the listener if no call has waited for some time."""
        if self._inboxes or monotonic_s() - self._needed_at < LINGER_S:
            return False
        with _registry:
            if not self._inboxes:
                _listeners.pop(self._key, None)
            return not self._inboxes


#: The listeners of this process, by process, connection and queue.
_listeners: dict[object, _Listener] = {}
#: Guards the listeners: none ends while a call enters it.
_registry: Final = Lock()


@contextmanager
def _listening(handle: QueueHandle, job_id: str) -> Iterator[Inbox]:
    """The events of a job, from now on."""
    key = (os.getpid(), handle.connection.settings, handle.keys.base)
    with _registry:
        if key not in _listeners:
            _listeners[key] = _Listener(handle, key)
        listener = _listeners[key]
        inbox = listener.enter(job_id)
    try:
        yield inbox
    finally:
        listener.leave(job_id, inbox)


def wait_for_job(handle: QueueHandle, job_id: str, timeout_s: float | None = None) -> Any:
    """Returns the result of a job when it has completed. Raises JobFailed, JobMissing or WaitTimeout."""
    if timeout_s is not None and not timeout_s >= 0:
        raise expected("timeout_s", "a number of seconds >= 0", timeout_s)
    end_at = None if timeout_s is None else monotonic_s() + timeout_s
    with _listening(handle, job_id) as inbox:
        call = _Call(handle, job_id, inbox)
        end = _end_in_redis(call)
        while end is None:
            left_s = LOOK_AGAIN_S if end_at is None else end_at - monotonic_s()
            if left_s <= 0:
                raise WaitTimeout(
                    f"expected job {job_id} of {handle.keys.queue} to end within {timeout_s:g} s, but it has not: wait "
                    "longer, or see whether a worker processes the queue",
                    queue=handle.keys.queue,
                    job_id=job_id,
                )
            end = _next(call, min(left_s, LOOK_AGAIN_S))
    return _result_of(handle, job_id, end)


def _next(call: _Call, wait_s: float) -> _JobEnd | None:
    """Waits for the next event of a job; None if the job goes on."""
    try:
        event = call.inbox.get(timeout=wait_s)
    except Empty:
        return _end_in_redis(call)
    if isinstance(event, Exception):
        raise event
    if event.id is not None and not call.seen.is_before(Position(event.id, None)):
        return None
    if event.event == "failed" and (call.handle.dialect.has("failed-attempt-events") or event.failed_reason is None):
        return _end_in_redis(call)
    return _end_by(event)


def _end_by(event: QueueEvent) -> _JobEnd | None:
    if event.event in (*ENDS, "removed"):
        return _JobEnd(event.event, event.returnvalue, event.failed_reason)
    return None


def _result_of(handle: QueueHandle, job_id: str, end: _JobEnd) -> Any:
    queue = handle.keys.queue
    if end.how == "completed":
        value = end.returnvalue
        if not isinstance(value, dict) or handle.payloads.is_plain:
            return value
        return json_or_text(handle.opened("returnvalue", job_id, json_text("returnvalue", value)))
    if end.how == "removed":
        raise JobMissing(f"job {job_id} of {queue} was removed before it had ended", queue=queue, job_id=job_id)
    raise JobFailed(
        f"job {job_id} of {queue} failed: {end.reason or 'the library keeps no reason'}",
        queue=queue,
        job_id=job_id,
        reason=end.reason,
    )


def _end_in_redis(call: _Call) -> _JobEnd | None:
    """Looks at a job; returns how it has ended, or None. Raises JobMissing."""
    is_completed, is_failed, exists, (returnvalue, reason) = _read_end(call)
    if not exists:
        return _end_of_gone(call)
    if is_completed:
        return _JobEnd("completed", None if returnvalue in NO_VALUE else json_or_text(text_of(returnvalue)))
    return _JobEnd("failed", reason=text_of(reason)) if is_failed else None


def _read_end(call: _Call) -> tuple[bool, bool, bool, list[Raw]]:
    """Whether a job is completed, or failed, whether it exists, and fields of its hash. Sets `seen`.

    The hash is read after the states: a job that is in one of them has its fields, or is gone.
    """
    handle, job_id = call.handle, call.job_id
    states = [handle.dialect.states[state] for state in ENDS]
    events = [("XREVRANGE", handle.keys["events"], "+", "-", "COUNT", 1)] if handle.dialect.has("event-stream") else []
    *last, completed, failed, exists, fields = handle.connection.pipeline(
        [
            *events,
            *(("ZSCORE" if state.kind == "zset" else "SISMEMBER", handle.keys[state.key], job_id) for state in states),
            ("EXISTS", handle.keys.job(job_id)),
            ("HMGET", handle.keys.job(job_id), "returnvalue", "failedReason"),
        ],
        raw=True,
    )
    if last and last[0]:
        call.seen = Position(last[0][0][0].decode(), None)
    return completed not in (None, 0), failed not in (None, 0), bool(exists and fields), fields or [None] * 2


def _end_of_gone(call: _Call) -> _JobEnd:
    """How a job has ended that does not exist any more, by its event. Raises JobMissing."""
    handle, job_id = call.handle, call.job_id
    event = _kept_end(handle, job_id) if handle.dialect.has("event-stream") else _end_in_inbox(call.inbox)
    end = None if event is None else _end_by(event)
    if end is None:
        raise JobMissing(
            f"expected job {job_id} in {handle.keys.queue}, found none: if it is removed when it ends, wait before it "
            "does, or keep it for some time with `remove_on_complete` and `remove_on_fail`",
            queue=handle.keys.queue,
            job_id=job_id,
        )
    return end


def _kept_end(handle: QueueHandle, job_id: str) -> QueueEvent | None:
    """Searches the last events of the stream for the end of a job that was removed."""
    wanted, before = job_id.encode(), "+"
    for _ in range(_SEARCHES):
        entries = handle.connection.call("XREVRANGE", handle.keys["events"], before, "-", "COUNT", _SEARCHED)
        for entry_id, fields in entries:
            if fields.get(b"jobId") == wanted:
                if fields.get(b"event") in (b"completed", b"failed"):
                    return entry_event(handle.keys.queue, entry_id, fields)
                if fields.get(b"event") in _GOES_ON:
                    return None
        if len(entries) < _SEARCHED:
            break
        before = f"({entries[-1][0].decode()}"
    return None


def _end_in_inbox(inbox: Inbox) -> QueueEvent | None:
    try:
        event = inbox.get(timeout=UNDER_WAY_S)
    except Empty:
        return None
    return None if isinstance(event, Exception) else event
