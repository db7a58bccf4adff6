"""Reads the books at the end of the soak: the table of results, what Redis has left, and the records of writes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spark_bull.core.model.read_jobs import Job
from tests.proof.books import FINAL, Books, Cell
from tests.proof.soak.accounts import Account, accounts, collected, worked
from tests.proof.soak.programs import ALL_QUEUES, FRAME_ROWS


@dataclass(frozen=True)
class Balance:
    accounts: dict[str, Account]
    worked: Cell
    collected: Cell

    @property
    def broken(self) -> list[str]:
        names = [name for name, account in self.accounts.items() if account.broken]
        return names + [name for name in ("worked", "collected") if getattr(self, name).broken]


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


#: Stored as ms since 1970.
TIMES = ("timestamp", "processedOn", "finishedOn")
COLUMNS = ("queue", "id", "state", "data", "failedReason", "attemptsMade", "attemptsStarted", *TIMES)


def committed_files(table: Path) -> list[Path]:
    """The files of the committed batches, by Spark's log; a compacted entry has the files of all earlier batches."""
    log = table / "_spark_metadata"
    entries = {int(entry.name.partition(".")[0]): entry for entry in log.glob("[0-9]*")}
    compact = max((batch for batch, entry in entries.items() if entry.suffix == ".compact"), default=-1)
    files = []
    for batch in sorted(batch for batch in entries if batch >= compact):
        for line in entries[batch].read_text().splitlines()[1:]:
            files.append(table / Path(json.loads(line)["path"]).name)
    return files


def results_of(folder: Path) -> list[Job]:
    """The results, in the order of their batches, without results of jobs that were gone before they were read."""
    rows = (row for file in committed_files(folder / "results") for row in pq.read_table(file).to_pylist())
    return [_job(row) for row in rows if row["data"] is not None]


def _job(row: dict[str, Any]) -> Job:
    return Job(
        row["queue"],
        row["id"],
        row["state"],
        data_text=row["data"],
        failed_reason=row["failedReason"],
        attempts_made=row["attemptsMade"] or 0,
        attempts_started=row["attemptsStarted"],
        timestamp=row["timestamp"],
        processed_on=row["processedOn"],
        finished_on=row["finishedOn"],
    )
