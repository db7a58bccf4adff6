"""Whether one order of the calls explains what became of the rows of writes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.proof.history import History, Op, Violation

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
