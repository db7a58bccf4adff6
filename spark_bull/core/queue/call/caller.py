"""A caller: adds calls and reads their outcomes. Callers of the same name share their calls, also one after the other.

The outcomes are in `PARENTS` parents of the caller, by the digests of the calls, so that Redis never deletes a large
hash at once when they expire. BullMQ stores them there, and removes the jobs. In Bull, whose jobs have no parents, and
if the details of the jobs are wanted, the jobs are kept when they end, until the caller gathers them.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from threading import Lock
from typing import Any, Final, NamedTuple

import msgpack

from spark_bull.core.dialects.encode.chunks import pack
from spark_bull.core.dialects.encode.codec import check_data, encode
from spark_bull.core.dialects.fields import integer_of
from spark_bull.core.keys import QueueKeys
from spark_bull.core.queue.dispatch.add import sealed
from spark_bull.core.queue.handle.admission import intake_closed
from spark_bull.core.queue.handle.handle import REMOVE_SIZE, QueueHandle

#: The error of a job of Bull 1.0.
_NO_REASON: Final = "the library keeps no reason"
#: Parents of a caller. Redis deletes a hash of 23,000 results in 10 ms: this is enough for 360,000 calls of a task.
PARENTS: Final = 16
#: Bytes of the hash of a payload: a multiple of three, which base64 does not pad.
_DIGEST: Final = 12
#: Calls of each parent that may have ended at any time, in Bull, where only a look at them tells.
_LOOKED_AT: Final = 16
#: Calls of one script that ends or gathers them: to end 100 takes Redis 2 ms.
CHUNK: Final = 100
#: Calls of one script that adds them.
ADDED: Final = 250
#: Characters of the payloads of one script.
MOST_BYTES: Final = 1 << 20
#: TTL of the lease of a caller: jobs of one without a lease are removed as long as they wait.
CALL_LEASE_MS: Final = 60_000
#: How long the parents of a caller outlive its results until the jobs that it has left are removed.
_SWEPT_WITHIN_MS: Final = 86_400_000


class Call(NamedTuple):
    """A job: its id, the number of its parent, and its payload, JSON text. row: its number, for errors."""

    job_id: str
    parent: int
    text: str
    row: int


class Details(NamedTuple):
    """What is known of a job that has ended. duration_ms: how long its last attempt took."""

    attempts_made: int | None = None
    duration_ms: int | None = None


_UNKNOWN: Final = Details()


class CallEnd(NamedTuple):
    """How a call has ended: `value` (JSON text) if it has completed, else `error`."""

    value: bytes | None
    error: str | None
    details: Details = _UNKNOWN


class _Siblings(NamedTuple):
    """Calls of one parent, and the keys of their jobs."""

    parent: str
    calls: list[Call]
    keys: list[str]


def parent_ids(keys: QueueKeys, caller: str) -> list[str]:
    """The ids of the parents of a caller."""
    return [keys.call_parent_id(caller, number) for number in range(PARENTS)]


class Caller:
    """name: identifies the caller in its queue. defaults: properties of its jobs, as `encode` takes them.

    keep_ms: how long its results are kept after it has ended. details: whether outcomes have details. `lapses`: how
    often its lease may have lapsed, and its pending jobs may have been removed.
    """

    def __init__(
        self, handle: QueueHandle, name: str, *, keep_ms: int, defaults: Mapping[str, Any], details: bool = False
    ) -> None:
        self.handle, self.name = handle, name
        self._keep_ms = keep_ms
        self._has_parents = handle.dialect.has("flows")
        self._keeps = details or not self._has_parents
        # A rule that keeps some jobs would remove others.
        self._defaults = {**defaults, "removeOnComplete": not self._keeps, "removeOnFail": not self._keeps}
        if self._has_parents:
            self._defaults["ignoreDependencyOnFailure"] = True
        self._hash_key = handle.payloads.hash_key("spark_bull call")
        self._numbers: dict[bytes, int] = {}
        self._parents = parent_ids(handle.keys, name)
        self._holding = Lock()
        self._has_ended = False
        self._renewed_ms: int | None = None
        self.lapses = 0

    def calls(self, texts: Sequence[str], rows: Sequence[int]) -> list[Call]:
        """Gives ids to the next calls, by payload and by their numbers among equal ones. rows: for errors.

        Raises OptionError for a row without a payload.
        """
        check_data(texts, rows)
        digests = [
            hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST, key=self._hash_key).digest()
            for text in texts
        ]
        # Together, as each call of the encoder costs as much as a hash.
        text_ids, width = urlsafe_b64encode(b"".join(digests)).decode(), _DIGEST * 4 // 3
        start, numbers, calls = f"call-{self.name}-", self._numbers, []
        for place, (text, digest, row) in enumerate(zip(texts, digests, rows, strict=True)):
            number = numbers.get(digest, 0)
            numbers[digest] = number + 1
            job_id = start + text_ids[place * width : (place + 1) * width] + (f"-{number}" if number else "")
            calls.append(Call(job_id, digest[0] % PARENTS, text, row))
        return calls

    def add(self, calls: Sequence[Call]) -> tuple[int, dict[str, CallEnd]]:
        """Adds calls that are neither pending nor ended; returns their number, and the outcomes of ended calls by id.

        Raises IntakeClosed, and OptionError for a payload or a property that a job can't have.
        """
        ordered = sorted(calls, key=lambda call: call.parent)
        args = {
            "caller": self.name,
            "chunk": self._packed(ordered),
            "pending": self._keys.never_ends,
            "keep_ms": self._keep_ms,
            "keeps": int(self._keeps),
            "lease_ms": CALL_LEASE_MS,
            "open_ms": self._keep_ms + _SWEPT_WITHIN_MS,
        }
        added, *ended = self.handle.run("add_calls", args)
        if added == b"closed":
            raise intake_closed(self._keys.queue)
        return added, self.outcomes([ordered[row - 1] for row in ended[0]])

    def _packed(self, calls: Sequence[Call]) -> bytes:
        numbers = [call.row for call in calls]
        # Ids and parents are no part of the options: no worker reads them there, and so the jobs share one text.
        encoded = encode(self.handle.dialect, {"data": [call.text for call in calls]}, self._defaults, numbers)
        # The jobs of calls are deleted as they end: an object would be left.
        jobs = sealed(self.handle, encoded, None, numbers)._replace(
            job_id=[call.job_id for call in calls],
            parent_queue=self._keys.queue,
            parent_id=[self._parents[call.parent] for call in calls],
        )
        return pack(jobs)

    def outcomes(self, calls: Sequence[Call]) -> dict[str, CallEnd]:
        """The outcomes of the calls that have ended, by id."""
        if self._keeps and self._has_parents:
            # Parents know outcomes before they are gathered: a job that ends after a look is left to the next one.
            ended = self._outcomes(calls)
            calls = [call for call in calls if call.job_id in ended]
        if self._keeps:
            self._gather(calls)
        return self._outcomes(calls)

    def _gather(self, calls: Sequence[Call]) -> None:
        for start in range(0, len(calls), CHUNK):
            gather_calls(self.handle, *self._ids(calls[start : start + CHUNK]))

    def _outcomes(self, calls: Sequence[Call]) -> dict[str, CallEnd]:
        found = {
            job_id: CallEnd(value, None) for job_id, value in self._read(calls, self._keys.children_values).items()
        }
        # Few jobs fail.
        others = [call for call in calls if call.job_id not in found]
        for job_id, reason in self._read(others, self._keys.children_failures).items():
            found[job_id] = CallEnd(None, reason.decode("utf-8", "replace") or _NO_REASON)
        if self._keeps:
            ended = [call for call in calls if call.job_id in found]
            for job_id, text in self._read(ended, self._keys.call_details).items():
                made, started, at = map(integer_of, text.split(b" "))
                duration_ms = None if started is None or at is None else at - started
                found[job_id] = found[job_id]._replace(details=Details(made, duration_ms))
        return found

    def _read(self, calls: Sequence[Call], hash_of: Callable[[str], str]) -> dict[str, bytes]:
        """What the parents of calls have of them in one of their hashes, by id."""
        groups = self._by_parent(calls)
        replies = self.handle.connection.pipeline(
            [("HMGET", hash_of(group.parent), *group.keys) for group in groups], raw=True
        )
        return {
            call.job_id: text
            for group, texts in zip(groups, replies, strict=True)
            for call, text in zip(group.calls, texts, strict=True)
            if text is not None
        }

    def ended(self, pending: Sequence[int]) -> list[int]:
        """How many of its pending calls of each parent have ended, or in Bull, may have ended.

        Fewer than have, if others of the caller's name have pending calls; more, if jobs were removed.
        """
        if not self._has_parents:
            return [min(count, _LOOKED_AT) for count in pending]
        sets = [self._keys.children(parent) for parent, count in zip(self._parents, pending, strict=True) if count]
        # Each has a member that stays.
        left = iter(self.handle.connection.pipeline([("SCARD", key) for key in sets], raw=True))
        return [count and max(0, count + 1 - next(left)) for count in pending]

    def removed(self, calls: Sequence[Call]) -> list[Call]:
        """The calls that are neither pending nor ended: someone has removed their jobs."""
        # A job enters the outcomes as it leaves the pending ones, so these are read first.
        pending = self._pending(calls)
        others = [call for call in calls if call.job_id not in pending]
        ended = self._outcomes(others)
        return [call for call in others if call.job_id not in ended]

    def _pending(self, calls: Sequence[Call]) -> set[str]:
        groups, pipeline = self._by_parent(calls), self.handle.connection.pipeline
        found = pipeline([("SMISMEMBER", self._keys.children(group.parent), *group.keys) for group in groups], raw=True)
        pending = [
            call.job_id
            for group, waits in zip(groups, found, strict=True)
            for call, waiting in zip(group.calls, waits, strict=True)
            if waiting
        ]
        if self._has_parents:
            return {*pending}
        # Who removes a job of Bull knows nothing of its parent.
        exist = pipeline([("EXISTS", self._keys.job(job_id)) for job_id in pending])
        return {job_id for job_id, exists in zip(pending, exist, strict=True) if exists}

    def end(self, calls: Sequence[Call], reason: str) -> None:
        """Ends calls with a reason, unless they have ended, and removes their jobs, unless a worker has them."""
        done = 0
        while done < len(calls):
            done += end_calls(self.handle, *self._ids(calls[done : done + CHUNK]), reason)

    def hold(self) -> None:
        """Renews the lease, unless the caller has ended. Threads may call it at any time.

        The times of Redis tell whether the lease may have lapsed. That it exists does not: another attempt, or the
        sweep that has removed the jobs, may have renewed it.
        """
        with self._holding:
            if self._has_ended:
                return
            now_ms = self._hold(ended=False)
            if self._renewed_ms is not None and now_ms - self._renewed_ms >= CALL_LEASE_MS:
                self.lapses += 1
            self._renewed_ms = now_ms

    def close(self) -> None:
        """All calls have ended: gives up the lease. Results stay for a task that Spark repeats."""
        with self._holding:
            self._has_ended = True
            self._hold(ended=True)

    def _hold(self, *, ended: bool) -> int:
        """Renews the lease, or gives it up, and keeps the results; returns the time of Redis, ms since 1970.

        ended: all calls have ended; another caller of the name may still need them.
        """
        args = {
            "caller": self.name,
            "keep_ms": max(self._keep_ms, CALL_LEASE_MS) if ended else self._keep_ms + _SWEPT_WITHIN_MS,
            "lease_ms": CALL_LEASE_MS,
            "ended": int(ended),
            "parents": [self._keys.job(parent) for parent in self._parents],
        }
        return int(self.handle.run("hold_calls", args))

    @property
    def _keys(self) -> QueueKeys:
        return self.handle.keys

    def _ids(self, calls: Sequence[Call]) -> tuple[list[str], list[str]]:
        """The ids of calls, and of their parents."""
        return [call.job_id for call in calls], [self._parents[call.parent] for call in calls]

    def _by_parent(self, calls: Sequence[Call]) -> list[_Siblings]:
        siblings: dict[int, list[Call]] = defaultdict(list)
        for call in calls:
            siblings[call.parent].append(call)
        base = self._keys.base
        return [
            _Siblings(self._parents[number], group, [base + call.job_id for call in group])
            for number, group in siblings.items()
        ]


def chunks(texts: Sequence[str], most: int = CHUNK) -> Iterator[tuple[int, int]]:
    """Splits rows into chunks of limited number and size: their first rows, and the rows after their last ones."""
    start = size = 0
    for stop, text in enumerate(texts):
        if stop > start and (stop - start == most or size + len(text or "") > MOST_BYTES):
            yield start, stop
            start, size = stop, 0
        size += len(text or "")
    if start < len(texts):
        yield start, len(texts)


def end_calls(handle: QueueHandle, job_ids: Sequence[str], parent_ids: Sequence[str], reason: str) -> int:
    """Ends pending calls with a reason, and removes their jobs; returns how many of the first calls are done."""
    return int(handle.run("end_calls", {"calls": _calls(job_ids, parent_ids), "reason": reason}))


def gather_calls(handle: QueueHandle, job_ids: Sequence[str | bytes], parent_ids: Sequence[str]) -> None:
    """Moves the outcomes and details of calls that have ended to their parents, and removes their jobs."""
    handle.run("gather_calls", {"calls": _calls(job_ids, parent_ids)})


def _calls(job_ids: Sequence[str | bytes], parent_ids: Sequence[str]) -> bytes:
    packed: bytes = msgpack.packb([[*job_ids], [*parent_ids]], use_bin_type=False)
    return packed


#: Callers that are looked at in one round.
_CALLERS: Final = 1_000


def sweep(handle: QueueHandle) -> int:
    """Removes the pending jobs of callers whose lease has lapsed, and that no worker has; returns their number."""
    connection, key = handle.connection, handle.keys["open_callers"]
    # Few queues have callers.
    if not connection.call("EXISTS", key):
        return 0
    lapsed = connection.call("ZRANGEBYSCORE", key, "-inf", connection.now_ms(), "LIMIT", 0, _CALLERS)
    return sum(_sweep_caller(handle, caller.decode()) for caller in lapsed)


def _sweep_caller(handle: QueueHandle, caller: str) -> int:
    removed = left = 0
    for parent_id, following in pairwise([*parent_ids(handle.keys, caller), ""]):
        _gather(handle, parent_id)
        args = {"caller": caller, "limit": REMOVE_SIZE, "is_last": int(not following), "lease_ms": CALL_LEASE_MS}
        position, stay = b"0", 0
        while position:
            args |= {"position": position, "left": left}
            position, *swept = handle.run("sweep_calls", args, parent=handle.keys.job(parent_id))
            if position == b"held":
                return removed
            removed, stay = removed + swept[0], swept[1]
        left += stay
    return removed


def _gather(handle: QueueHandle, parent_id: str) -> None:
    """Removes the kept jobs of a parent that have ended. The others keep the caller until a later sweep."""
    # The ids may be no UTF-8.
    keys, cursor = handle.keys, None
    base, never_ends = keys.base.encode(), keys.never_ends.encode()
    while cursor != 0:
        cursor, found = handle.connection.call("SSCAN", keys.kept_calls(parent_id), cursor or 0, "COUNT", CHUNK)
        job_ids = [key[len(base) :] for key in found if key != never_ends]
        if job_ids:
            gather_calls(handle, job_ids, [parent_id] * len(job_ids))
