"""Histories: what producers, workers and readers asked and saw, and whether one order of the calls explains it.

All processes of a history run on one machine, and its monotonic clock gives their times (ns). A call whose end nobody
saw has no end: it may have taken effect at any time after its begin, or not at all.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Literal, NamedTuple

from redis import Redis

from spark_bull.core.queue.handle.handle import QueueHandle

#: The key that moves the clock of the scripts, ms.
CLOCK = "proof:clock"

#: write: rows of one queue. recover: writes that were finished. claim, extend, settle: jobs under one lock token.
#: lapse: locks that ended before their time. retry: finished jobs that wait again. deliver: results, in order.
Act = Literal["write", "recover", "claim", "extend", "settle", "lapse", "retry", "deliver"]
Kind = Literal["lost", "twice", "stuck", "out of order", "two holders"]


@dataclass
class Op:
    """One call. jobs: rows, or ids of writes, for which the answer is true. token: lock token, or identity of a write.

    given: what was asked, if that is more than `jobs`. at: position of the first result.
    """

    act: Act
    party: str
    token: str = ""
    queue: str = ""
    given: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    answer: str = ""
    at: int = 0
    lock_ms: int = 0
    begin: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Violation:
    """What no order of the calls explains."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass
class History:
    """The calls, in the order of their begins, and the jobs that are in each queue at the end: rows by state."""

    ops: list[Op] = field(default_factory=list)
    left: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    @contextmanager
    def op(self, op: Op) -> Iterator[Op]:
        """Records a call; the block completes `op` with what it saw. After an exception the call has no end."""
        op.begin = monotonic_ns()
        self.ops.append(op)
        yield op
        op.end = monotonic_ns()

    def of(self, *acts: Act) -> list[Op]:
        return [op for op in self.ops if op.act in acts]

    def rows(self, queue: str) -> list[str]:
        return [row for rows in self.left.get(queue, {}).values() for row in rows]


FINAL = ("completed", "failed")


def check_work(history: History) -> list[Violation]:
    return [*_check_holders(history), *_check_outcomes(history), *_check_results(history)]


class Hold(NamedTuple):
    """A time in which a token surely holds the lock of a job, ns."""

    token: str
    since: int
    until: int


def _check_holders(history: History) -> Iterator[Violation]:
    """No lock is used under a token while another one surely holds it."""
    uses: dict[str, list[Op]] = defaultdict(list)
    lapses: dict[str, list[Op]] = defaultdict(list)
    for op in history.of("claim", "extend", "settle"):
        for row in op.given or op.jobs:
            uses[row].append(op)
    for op in history.of("lapse"):
        for row in op.jobs:
            lapses[row].append(op)
    for row, ops in uses.items():
        holds = [hold for op in ops if (hold := _hold(row, op, ops, lapses[row]))]
        for use in ops:
            if row not in use.jobs or use.end is None:
                continue
            for hold in holds:
                if hold.token != use.token and hold.since < use.begin and use.end < hold.until:
                    what = f"{use.act} of job {row} under {use.token} while {hold.token} held it"
                    yield Violation("two holders", what)


def _hold(row: str, op: Op, ops: Sequence[Op], lapses: Sequence[Op]) -> Hold | None:
    """How long the lock surely lasts that a claim or an extension sets: until its token gives it up, or loses it."""
    if op.act == "settle" or op.end is None or row not in op.jobs:
        return None
    ends = [
        other.begin for other in ops if other.token == op.token and other.begin > op.begin and other.act == "settle"
    ]
    lost = [o for o in ops if o.token == op.token and o.begin > op.begin and o.act == "extend" and row not in o.jobs]
    ends += [op.end for _ in lost] + [lapse.begin for lapse in lapses if lapse.begin > op.begin]
    return Hold(op.token, op.end, min([op.begin + op.lock_ms * 1_000_000, *ends]))


def _check_outcomes(history: History) -> Iterator[Violation]:
    """Each job that was added has ended, once more than it was sent back."""
    ends = Counter(row for op in history.of("settle") if op.answer in FINAL for row in op.jobs)
    unknown = Counter(row for op in history.of("settle") if op.end is None for row in op.given)
    asked = Counter(row for op in history.of("retry") for row in op.jobs)
    delivered = {entry.partition("@")[0] for op in history.of("deliver") for entry in op.jobs}
    for op in history.of("write"):
        present = Counter(history.rows(op.queue))
        for row in op.given if op.answer == "added" else ():
            if not present[row] and row not in delivered:
                yield Violation("lost", f"job {row} of queue {op.queue}")
            if present[row] > 1:
                yield Violation("twice", f"row {row} is {present[row]} jobs of queue {op.queue}")
    for queue, states in history.left.items():
        for state, rows in states.items():
            for row in rows if state not in FINAL else ():
                yield Violation("stuck", f"job {row} of queue {queue} is {state}")
    for row, times in ends.items():
        if times > asked[row] + 1:
            yield Violation(
                "twice", f"{times} outcomes of job {row} were accepted, which was retried {asked[row]} times"
            )
        elif times + unknown[row] < asked[row] + 1:
            yield Violation("lost", f"job {row} has {times} outcomes, but was retried {asked[row]} times")


def _check_results(history: History) -> Iterator[Violation]:
    """Each outcome is one result; a position that is read again has the same one."""
    if not (reads := history.of("deliver")):
        return
    at: dict[int, str] = {}
    for op in reads:
        for position, entry in enumerate(op.jobs, op.at):
            if at.setdefault(position, entry) != entry:
                yield Violation("out of order", f"result {position} was {at[position]}, then {entry}")
    times = Counter(entry.partition("@")[0] for entry in at.values())
    ends = Counter(row for op in history.of("settle") if op.answer in FINAL for row in op.jobs)
    unknown = Counter(row for op in history.of("settle") if op.end is None for row in op.given)
    for row in times.keys() | ends.keys():
        if times[row] > ends[row] + unknown[row]:
            yield Violation("twice", f"{times[row]} results of job {row}, which ended {ends[row]} times")
        if times[row] < ends[row]:
            yield Violation("lost", f"{times[row]} results of job {row}, which ended {ends[row]} times")


#: Answers after which all rows must be there.
ADDED = ("added", "replayed")


def check_writes(history: History) -> list[Violation]:
    writes: dict[str, list[Op]] = defaultdict(list)
    for op in history.of("write"):
        writes[op.token].append(op)
    found = [violation for ops in writes.values() for violation in _check_write(history, ops)]
    return [*found, *_check_recoveries(history)]


def _check_write(history: History, ops: list[Op]) -> Iterator[Violation]:
    """All rows of a write, which has an op per queue and try, are there once and in order, or none is."""
    rows = {op.queue: op.given for op in ops}
    name = ops[0].token
    seen = {queue: [row for row in history.rows(queue) if row in given] for queue, given in rows.items()}
    present = {row for there in seen.values() for row in there}
    for queue, there in seen.items():
        for row, times in Counter(there).items():
            if times > 1:
                yield Violation("twice", f"row {row} of write {name} is in queue {queue} {times} times")
        if list(dict.fromkeys(there)) != [row for row in rows[queue] if row in there]:
            yield Violation("out of order", f"rows of write {name} in queue {queue}: {there}")
    missing = [row for given in rows.values() for row in given if row not in present]
    if missing and (present or any(op.answer in ADDED for op in ops)):
        yield Violation("lost", f"write {name} lacks {missing}, but has {sorted(present)}: {[op.answer for op in ops]}")
    if present and all(op.answer == "refused" for op in ops):
        yield Violation("twice", f"write {name} was refused, but has {sorted(present)}")


def _check_recoveries(history: History) -> Iterator[Violation]:
    """A recovery finds all staged rows, and finishes writes of one queue in the order of their registration."""
    queues: dict[str, set[str]] = defaultdict(set)
    tries: dict[str, list[Op]] = defaultdict(list)
    for op in history.of("write"):
        queues[op.party].add(op.queue)
        tries[op.party].append(op)
    for op in history.of("recover"):
        if op.answer:
            yield Violation("lost", f"a recovery of queue {op.queue} found staged rows missing: {op.answer}")
        alone = [write for write in op.jobs if len(queues[write]) == 1]
        for number, write in enumerate(alone):
            for later in alone[number + 1 :]:
                end, begin = tries[later][-1].end, tries[write][0].begin
                if end is not None and end < begin:
                    yield Violation(
                        "out of order", f"write {later} was registered before {write}, but finished after it"
                    )


def rows_of(client: Redis, handle: QueueHandle, ids: Sequence[bytes]) -> list[str]:
    """The rows of jobs; those that are gone are named by their ids."""
    pipeline = client.pipeline(transaction=False)
    for job_id in ids:
        pipeline.hget(handle.keys.job(job_id.decode()), "data")
    found = pipeline.execute()
    return [json.loads(data)["row"] if data else f"gone-{one.decode()}" for one, data in zip(ids, found, strict=True)]


def rows_by_state(client: Redis, handle: QueueHandle) -> dict[str, list[str]]:
    """The rows of each state that has jobs; the rows of a list are in the order in which they will start."""
    rows = {}
    for name, state in handle.dialect.states.items():
        key = handle.keys[state.key]
        ids = client.lrange(key, 0, -1)[::-1] if state.kind == "list" else []
        ids = ids or (client.zrange(key, 0, -1) if state.kind == "zset" else [])
        ids = ids or (sorted(client.smembers(key)) if state.kind == "set" else [])
        # Node puts a marker among the ids.
        if ids := [one for one in ids if not one.startswith(b"0:")]:
            rows[name] = rows_of(client, handle, ids)
    return rows
