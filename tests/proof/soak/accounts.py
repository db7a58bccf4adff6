"""The books of the soak: what was dispatched, and what has become of each job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_bull.core.model.read_jobs import Job
from tests.proof.books import BALANCES, FINAL, Books, Cell, rows_once
from tests.proof.soak.programs import AT_ONCE, QUEUES, behaviour, expected, expires

EXPIRED = "expired"


@dataclass
class Account:
    """dispatched: rows, or jobs of job schedulers. outcomes: jobs by what has become of them. wrong: jobs with another
    outcome than their payload asks for.
    """

    dispatched: int
    deduplicated: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    cell: Cell = field(default_factory=Cell)
    wrong: int = 0

    @property
    def balances(self) -> bool:
        """Whether each row has become one job that has ended, or was deduplicated."""
        return self.dispatched + self.cell.repeats == self.deduplicated + self.outcomes.total()

    @property
    def broken(self) -> bool:
        return not self.balances or self.cell.broken or self.wrong > 0


def accounts(books: Books, deduplicated: Counter[str], streamed: int) -> dict[str, Account]:
    """An account for each of QUEUES. deduplicated: rows by queue. streamed: rows of committed micro-batches."""
    return {name: _account(books, name, deduplicated[name], streamed) for name in QUEUES}


def outcome(job: Job) -> str:
    return EXPIRED if job.state == "failed" and job.failed_reason == EXPIRED else str(job.state)


def _account(books: Books, name: str, deduplicated: int, streamed: int) -> Account:
    jobs = [job for queue in QUEUES[name] for job in books.jobs[queue]]
    ended = [job for job in jobs if job.state in FINAL]
    if name == "schedule":
        seen = {job for job in books.began_at if job[0] == name} | {(name, job.id) for job in jobs}
        dispatched, cell = len(seen), Cell(stuck=len(jobs) - len(ended))
    else:
        rows = {job.data["row"] for job in jobs} | _rows(books, name, streamed)
        dispatched, cell = len(rows), _cell(books, name, jobs, rows)
    wrong = sum(not _as_asked(books, name, job) for job in ended)
    return Account(dispatched, deduplicated, Counter(map(outcome, ended)), cell, wrong)


def _rows(books: Books, name: str, streamed: int) -> set[str]:
    """The rows that were dispatched for sure."""
    if name == "frames":
        values = (int(job.data["row"].rpartition(".")[2]) for job in books.jobs[name])
        return {f"frames.{value}" for value in range(max(streamed, 1 + max(values, default=-1)))}
    versions = [version for acked, version in books.acked if acked == name and name != "added"]
    if name == "added":
        versions = [version for acked, version in books.acked if acked == "add_many"]
    return {row for version in versions for rows in expected(name, version).values() for row in rows}


def _cell(books: Books, name: str, jobs: list[Job], rows: set[str]) -> Cell:
    if name == "manage":
        return rows_once(books, name, "moved")
    if name in BALANCES:
        return BALANCES[name](books, name)
    found = Counter(job.data["row"] for job in jobs)
    lost, twice = len(rows - found.keys()), sum(times - 1 for times in found.values())
    return Cell(0, lost, twice, books.stuck(*QUEUES[name]), _too_many(jobs) if name == "group" else 0)


def _as_asked(books: Books, name: str, job: Job) -> bool:
    if name == "expire" and expires(job.data["row"]):
        return outcome(job) == EXPIRED and (job.queue, job.id) not in books.starts
    if name == "retry" and behaviour(job.data["row"]) == "fail":
        return outcome(job) == "failed"
    # A job that may run once has failed if its worker was killed.
    return name == "most" or outcome(job) == "completed"


def _too_many(jobs: Iterable[Job]) -> int:
    """Starts of jobs of a tenant while as many ran as may; by the clock of Redis, in which one ms is one moment."""
    moments: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for job in jobs:
        if job.state == "completed":
            moments[job.data["tenant"]] += [(job.processed_on or 0, 1), (job.finished_on or 0, -1)]
    count = 0
    for changes in moments.values():
        running = 0
        for _, change in sorted(changes):
            running += change
            count += change > 0 and running > AT_ONCE
    return count


def worked(books: Books) -> Cell:
    """What workers did: starts without an outcome, which repeat a job, and outcomes that were counted twice."""
    jobs = [job for jobs in books.jobs.values() for job in jobs]
    repeats = sum(max(0, (job.attempts_started or 0) - max(1, job.attempts_made)) for job in jobs)
    return Cell(repeats=repeats, twice=sum(times - 1 for times in books.ends.values()))


def collected(books: Books, results: Counter[tuple[str, str]]) -> Cell:
    """Each job that has ended, by the events of its queue, is one row of the table. results: rows by queue and job."""
    return Cell(lost=len(books.ends.keys() - results.keys()), twice=sum(times - 1 for times in results.values()))
