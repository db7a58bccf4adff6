"""Whether one order of the calls explains what became of jobs: locks, outcomes, results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.proof.history import History, Op, Violation

FINAL = ("completed", "failed")


def check_work(history: History) -> list[Violation]:
    return [*_check_holders(history), *_check_outcomes(history), *_check_results(history)]


def repeats(history: History) -> int:
    """How often a job started again that had not been sent back: what at-least-once work allows."""
    starts = Counter(row for op in history.of("claim") for row in op.jobs)
    asked = Counter(row for op in history.of("retry") for row in op.jobs)
    asked.update(row for op in history.of("settle") if op.answer not in FINAL for row in op.jobs)
    return sum(max(0, times - 1 - asked[row]) for row, times in starts.items())


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
