"""A caller: adds calls and reads their outcomes. Callers of the same name share their calls, also one after the other.

The outcomes are in `PARENTS` parents of the caller, by the digests of the calls, so that Redis never deletes a large
hash at once when they expire.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

from spark_bull.dialects.encode.chunks import pack
from spark_bull.dialects.encode.codec import check_data, encode
from spark_bull.keys import QueueKeys
from spark_bull.queue.call.chunks import CHUNK
from spark_bull.queue.core import verbs
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.core.length_limit import intake_closed
from spark_bull.queue.dispatch.kept import kept
from spark_bull.store.connection import Command

#: Parents of a caller. Redis deletes a hash of 23,000 results in 10 ms: this is enough for 360,000 calls of a task.
PARENTS: Final = 16
#: Node deletes the jobs of calls when they end: a kept one would not be safe from the rules of other jobs.
_REMOVED: Final = {"removeOnComplete": True, "removeOnFail": True}


class Call(NamedTuple):
    """A job: its id, the number of its parent, and its payload, JSON text. row: its number, for errors."""

    job_id: str
    parent: int
    text: str
    row: int


class Outcome(NamedTuple):
    """How a call has ended: `value` (JSON text) if it has completed, else `error`."""

    value: bytes | None
    error: str | None


def parent_ids(keys: QueueKeys, caller: str) -> list[str]:
    """The ids of the parents of a caller."""
    return [keys.call_parent_id(caller, number) for number in range(PARENTS)]


def _outcome(value: bytes | None, reason: bytes | None) -> Outcome | None:
    if value is not None:
        return Outcome(value, None)
    return None if reason is None else Outcome(None, reason.decode("utf-8", "replace"))


class Caller:
    """name: identifies the caller in its queue. defaults: properties of its jobs, as `encode` takes them.

    keep_ms: how long its results are kept after it has ended. `lapses`: how often its lease may have lapsed, and its
    pending jobs may have been removed.
    """

    def __init__(self, handle: QueueHandle, name: str, *, keep_ms: int, defaults: Mapping[str, Any]) -> None:
        self.handle, self.name = handle, name
        self._keep_ms = keep_ms
        self._defaults = {**defaults, **_REMOVED}
        self._numbers: Counter[bytes] = Counter()
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
        calls = []
        for text, row in zip(texts, rows, strict=True):
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest()
            number = self._numbers[digest]
            self._numbers[digest] += 1
            job_id = f"call-{self.name}-{digest.hex()}" + (f"-{number}" if number else "")
            calls.append(Call(job_id, digest[0] % PARENTS, text, row))
        return calls

    def add(self, calls: Sequence[Call]) -> tuple[int, dict[str, Outcome]]:
        """Adds calls that are neither pending nor ended; returns their number, and the outcomes of ended calls by id.

        Raises IntakeClosed, and OptionError for a payload or a property that a job can't have.
        """
        ordered = sorted(calls, key=lambda call: call.parent)
        rows: dict[str, list[Any]] = {
            "data": [call.text for call in ordered],
            "jobId": [call.job_id for call in ordered],
            "parent": [self._parent(call.parent) for call in ordered],
        }
        numbers = [call.row for call in ordered]
        # Node deletes the jobs of calls as they end: an object would be left.
        encoded = kept(self.handle, encode(self.handle.dialect, rows, self._defaults, numbers), None, numbers)
        reply = verbs.add_calls(self.handle, self.name, pack(encoded), keep_ms=self._keep_ms)
        if reply is None:
            raise intake_closed(self.handle.keys.queue)
        outcomes = {}
        for row, completed, text in reply.outcomes:
            outcome = _outcome(text, None) if completed else _outcome(None, text)
            assert outcome is not None
            outcomes[ordered[row].job_id] = outcome
        return reply.added, outcomes

    def _parent(self, number: int) -> dict[str, str]:
        return {"queue": self.handle.keys.queue, "id": self._parents[number], "onFailure": "ignore"}

    def outcomes(self, calls: Sequence[Call]) -> dict[str, Outcome]:
        """The outcomes of those of some calls that have ended, by id."""
        groups = self._by_parent(calls)
        replies = self.handle.connection.replies([one for group in groups for one in self._reads(*group)])
        found = {}
        for index, (_, jobs, _) in enumerate(groups):
            for call, *texts in zip(jobs, *replies[2 * index : 2 * index + 2], strict=True):
                outcome = _outcome(*texts)
                if outcome is not None:
                    found[call.job_id] = outcome
        return found

    def removed(self, calls: Sequence[Call]) -> list[Call]:
        """Those of some calls that are neither pending nor ended: someone has removed their jobs."""
        groups = self._by_parent(calls)
        commands: list[Command] = []
        for parent, jobs, fields in groups:
            # A job enters the outcomes as it leaves the pending ones, so these are read first.
            commands += [("SMISMEMBER", self._keys.children(parent), *fields), *self._reads(parent, jobs, fields)]
        replies, gone = self.handle.connection.replies(commands), []
        for index, (_, jobs, _) in enumerate(groups):
            waits, values, reasons = replies[3 * index : 3 * index + 3]
            rows = zip(jobs, waits, values, reasons, strict=True)
            gone += [call for call, waiting, *texts in rows if not waiting and _outcome(*texts) is None]
        return gone

    def end(self, calls: Sequence[Call], reason: str) -> None:
        """Ends calls with a reason, unless they have ended, and removes their jobs, unless a worker has them."""
        done = 0
        while done < len(calls):
            chunk = calls[done : done + CHUNK]
            parents = [self._parents[call.parent] for call in chunk]
            done += verbs.end_calls(self.handle, [call.job_id for call in chunk], parents, reason)

    def hold(self) -> None:
        """Renews the lease, unless the caller has ended. Threads may call it at any time.

        The times of Redis tell whether the lease may have lapsed. That it exists does not: another attempt, or the
        sweep that has removed the jobs, may have renewed it.
        """
        with self._holding:
            if self._has_ended:
                return
            now_ms = self._hold(ended=False)
            if self._renewed_ms is not None and now_ms - self._renewed_ms >= verbs.CALL_LEASE_MS:
                self.lapses += 1
            self._renewed_ms = now_ms

    def close(self) -> None:
        """All calls have ended: gives up the lease. Results stay for a task that Spark repeats."""
        with self._holding:
            self._has_ended = True
            self._hold(ended=True)

    def _hold(self, *, ended: bool) -> int:
        keys = [self._keys.job(parent) for parent in self._parents]
        return verbs.hold_calls(self.handle, self.name, keys, keep_ms=self._keep_ms, ended=ended)

    @property
    def _keys(self) -> QueueKeys:
        return self.handle.keys

    def _by_parent(self, calls: Sequence[Call]) -> list[tuple[str, list[Call], list[str]]]:
        """The calls by the ids of their parents, and the keys of their jobs."""
        groups: dict[int, list[Call]] = defaultdict(list)
        for call in calls:
            groups[call.parent].append(call)
        base = self._keys.base
        return [
            (self._parents[number], group, [base + call.job_id for call in group]) for number, group in groups.items()
        ]

    def _reads(self, parent: str, _: Sequence[Call], fields: Sequence[str]) -> list[Command]:
        return [
            ("HMGET", self._keys.children_values(parent), *fields),
            ("HMGET", self._keys.children_failures(parent), *fields),
        ]
