"""Reads the books at the end of the soak: the table of results, what Redis has left, and the records of writes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from spark_bull.model.jobs import Job
from tests.proof.books import FINAL, Books, Cell
from tests.proof.soak.accounts import Account, accounts, collected, worked
from tests.proof.soak.programs import ALL_QUEUES, FRAME_ROWS
from tests.proof.soak.results import read_table


@dataclass(frozen=True)
class Balance:
    accounts: dict[str, Account]
    worked: Cell
    collected: Cell

    @property
    def broken(self) -> list[str]:
        names = [name for name, account in self.accounts.items() if account.broken]
        return names + [name for name in ("worked", "collected") if getattr(self, name).broken]


def results_of(folder: Path) -> list[Job]:
    return [*read_table(folder / "results")]


def audit(books: Books, folder: Path) -> Balance:
    """books: with the events."""
    place, results = books.place, results_of(folder)
    books.note(place.notes.all())
    books.place = replace(place, versions=max((version for _, version in books.acked), default=0))
    once = {(job.queue, job.id): job for job in results}
    deduplicated: Counter[str] = Counter()
    for name in (*ALL_QUEUES, "manage"):
        with place.queue(name) as queue:
            states = [state for state in queue.counts() if state not in FINAL]
            left = [job for state in states for job in queue.page(state, 0, 100_000)]
            records = queue.writes()
        books.add(name, [job for job in once.values() if job.queue == name] + left)
        books.open_writes += sum(record.state != "finished" for record in records)
        deduplicated[name] += sum(record.deduplicated for record in records)
    rows = FRAME_ROWS * _committed(folder / "dispatch")
    times = Counter((job.queue, job.id) for job in results)
    return Balance(accounts(books, deduplicated, rows), worked(books), collected(books, times))


def _committed(checkpoint: Path) -> int:
    """The number of committed micro-batches."""
    return max((int(entry.stem) + 1 for entry in (checkpoint / "commits").glob("[0-9]*")), default=0)
