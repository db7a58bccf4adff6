"""Whether the books balance after a fault: what is repeated, lost, there twice, stuck or out of order.

The books are the rows that the driver has acknowledged, what workers and readers noted, and what Redis has at the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from redis import Redis

from spark_bull import BullQueue, Job
from tests.proof.producers import PRODUCERS, WORKED, Note, Place, rows_of

FINAL = ("completed", "failed")


class Cell(NamedTuple):
    """Numbers of rows, jobs or results. repeats: allowed by the promise."""

    repeats: int = 0
    lost: int = 0
    twice: int = 0
    stuck: int = 0
    out_of_order: int = 0

    @property
    def broken(self) -> bool:
        return any(self[1:])

    def __str__(self) -> str:
        words = ("repeats", "lost", "twice", "stuck", "out of order")
        return ", ".join(f"{number} {word}" for word, number in zip(words, self, strict=True) if number) or "0"


@dataclass
class Books:
    """What has become of the jobs of each queue, and what was noted.

    ends, ended_at, began_at: by queue and job: how often it ended, when it last did, and when it first started, ms
    since 1970 by the clock of Redis. acked: programs and their versions. starts: times of notes by queue and job.
    """

    place: Place
    jobs: dict[str, list[Job]] = field(default_factory=dict)
    states: dict[str, Counter[str]] = field(default_factory=dict)
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    ended_at: dict[tuple[str, str], int] = field(default_factory=dict)
    began_at: dict[tuple[str, str], int] = field(default_factory=dict)
    open_writes: int = 0
    schedulers: list[str] = field(default_factory=list)
    acked: set[tuple[str, int]] = field(default_factory=set)
    starts: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    results: dict[tuple[str, int], str] = field(default_factory=dict)

    @classmethod
    def read(cls, place: Place, client: Redis) -> Books:
        """What is left in Redis: all jobs, if nothing removes them."""
        books = cls(place)
        books.note(place.notes.all())
        worked = [queue for name in place.names for queue in WORKED.get(name, ())]
        for name in [*worked, *(["manage", "moved", "schedule"] if "manage" in place.names else [])]:
            with place.queue(name) as queue:
                books._read(queue, client)
        return books

    def note(self, notes: Sequence[Note]) -> None:
        self.acked = {(note.name, note.number) for note in notes if note.what == "acked"}
        self.starts = _by_job(note for note in notes if note.what == "start")
        self.results = {(note.name, note.number): note.job_id for note in notes if note.what == "result"}

    def add(self, queue: str, jobs: list[Job]) -> None:
        self.jobs[queue] = jobs
        self.states[queue] = Counter(job.state for job in jobs)

    def see(self, queue: str, event: bytes, fields: Mapping[bytes, bytes]) -> None:
        """Takes an event of a queue, in the order of the events."""
        job, at = (queue, fields.get(b"jobId", b"").decode()), int(event.partition(b"-")[0])
        if fields[b"event"] in (b"completed", b"failed"):
            self.ends[job] += 1
            self.ended_at[job] = at
        elif fields[b"event"] == b"active":
            self.began_at.setdefault(job, at)

    def _read(self, queue: BullQueue, client: Redis) -> None:
        self.add(queue.name, [job for state in queue.counts() for job in queue.page(state, 0, 100_000)])
        self.open_writes += sum(record.state == "open" for record in queue.writes())
        if queue.name == "schedule":
            self.schedulers = [one.id for one in queue.schedulers()]
        for event, fields in client.xrange(queue.handle.keys["events"]):
            self.see(queue.name, event, fields)

    def overlap(self, former: Job, later: Job) -> bool:
        """Whether a job has started before another one ended, by the events of Redis."""
        began, ended = (self.began_at.get((later.queue, later.id)), self.ended_at.get((former.queue, former.id)))
        return began is not None and (ended is None or began < ended)

    def expected(self, name: str) -> list[str]:
        """The rows of all versions that were acknowledged."""
        versions = range(1, self.place.versions + 1)
        return [row for version in versions if (name, version) in self.acked for row in rows_of(name, version)]

    def rows(self, queue: str) -> Counter[str]:
        return Counter(job.data["row"] for job in self.jobs[queue])

    def stuck(self, *queues: str) -> int:
        return sum(count for queue in queues for state, count in self.states[queue].items() if state not in FINAL)


def _by_job(notes: Iterable[Note]) -> dict[tuple[str, str], list[int]]:
    """The times of notes, by queue and job."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for note in notes:
        found[note.name, note.job_id].append(note.at)
    return found


def rows_once(books: Books, name: str, queue: str = "") -> Cell:
    """Each row of acknowledged versions is one job; a version that was not acknowledged is there as a whole, or not."""
    rows, expected = books.rows(queue or name), books.expected(name)
    lost = sum(rows[row] == 0 for row in expected)
    return Cell(lost=lost, twice=sum(times - 1 for times in rows.values()))


def _in_row_order(books: Books, name: str) -> Cell:
    """As `rows_once`; ids, which Redis counts, follow the order of the rows."""
    ids = {job.data["row"]: int(job.id) for job in books.jobs[name]}
    versions = range(1, books.place.versions + 1)
    ordered = [[ids[row] for row in rows_of(name, version) if row in ids] for version in versions]
    wrong = sum(before > after for version in ordered for before, after in pairwise(version))
    return rows_once(books, name)._replace(out_of_order=wrong, stuck=books.open_writes)


def _least(books: Books, name: str) -> Cell:
    once = rows_once(books, name)
    return once._replace(repeats=once.twice, twice=0)


def _unique(books: Books, name: str) -> Cell:
    """Jobs of one key were never unfinished at the same time."""
    lives: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for job in books.jobs[name]:
        lives[job.data["key"]].append((job.timestamp or 0, job.finished_on or 0))
    both = sum(later[0] < former[1] for one in lives.values() for former, later in pairwise(sorted(one)))
    return Cell(twice=both, stuck=books.stuck(name))


def _flow(books: Books, name: str) -> Cell:
    """Each parent has its children, and has started after they have ended."""
    children = books.rows("child")
    once = rows_once(books, name)
    lost = sum(children[f"{row}.{n}"] == 0 for row in books.rows(name) for n in range(2))
    child = {job.data["row"]: job for job in books.jobs["child"]}
    pairs = [(child.get(f"{parent.data['row']}.{n}"), parent) for parent in books.jobs[name] for n in range(2)]
    early = sum(one is not None and books.overlap(one, parent) for one, parent in pairs)
    twice = sum(times - 1 for times in children.values())
    return Cell(0, once.lost + lost, once.twice + twice, books.stuck(name, "child"), early)


def _batch(books: Books, name: str) -> Cell:
    """Each version has one callback, which has started after its jobs have ended."""
    callbacks = books.rows("callback")
    versions = [version for acked, version in books.acked if acked == name]
    of = defaultdict(list)
    for job in books.jobs[name]:
        of[job.data["row"].split(".")[1]].append(job)
    pairs = [(job, done) for done in books.jobs["callback"] for job in of[done.data["row"].split(".")[1]]]
    early = sum(books.overlap(job, done) for job, done in pairs)
    lost = sum(callbacks[f"callback.{version}"] == 0 for version in versions)
    twice = sum(times - 1 for times in callbacks.values())
    return Cell(0, lost, twice, books.stuck(name, "callback"), early)


def _sequence(books: Books, name: str) -> Cell:
    """No job of a key has started before the one before it has ended."""
    by_key: dict[str, list[Job]] = defaultdict(list)
    for job in books.jobs[name]:
        by_key[job.data["key"]].append(job)
    early = 0
    for jobs in by_key.values():
        jobs.sort(key=lambda job: tuple(map(int, job.data["row"].split(".")[1:])))
        early += sum(books.overlap(former, later) for former, later in pairwise(jobs))
    return rows_once(books, name)._replace(stuck=books.stuck(name), out_of_order=early)


def _manage(books: Books, name: str) -> Cell:
    """Each job was moved once, each scheduler exists once and has one next job."""
    moved = rows_once(books, name, "moved")
    versions = [version for acked, version in books.acked if acked == name]
    lost = sum(f"s{version}" not in books.schedulers for version in versions)
    following = Counter(job.id.rpartition(":")[0] for job in books.jobs["schedule"])
    twice = sum(times - 1 for times in following.values())
    left = sum(row in books.rows(name) for row in books.expected(name))
    return Cell(0, moved.lost + lost, moved.twice + twice, left)


def _most(books: Books, name: str) -> Cell:
    twice = sum(len(times) - 1 for (queue, _), times in books.starts.items() if queue == name)
    return rows_once(books, name)._replace(twice=twice, stuck=books.stuck(name))


def _added(books: Books, name: str) -> Cell:
    rows = books.rows(name)
    sure = [version for acked, version in books.acked if acked == "add_many"]
    lost = sum(rows[row] == 0 for version in sure for row in rows_of(name, version))
    return Cell(lost=lost, twice=sum(times - 1 for times in rows.values()))


def worked(books: Books) -> Cell:
    """What workers did with all jobs that may run again: each has ended, once."""
    queues = [queue for name in books.place.names if name != "most" for queue in WORKED.get(name, ())]
    repeats = sum(len(times) - 1 for (queue, _), times in books.starts.items() if queue in queues)
    jobs = [(queue, job.id, job.state) for queue in queues for job in books.jobs[queue]]
    # Those of a Node worker are not noted.
    lost = sum((queue, job_id) not in books.starts for queue, job_id, state in jobs if books.starts and state in FINAL)
    twice = sum(max(0, books.ends[queue, job_id] - 1) for queue, job_id, _ in jobs)
    return Cell(repeats, lost, twice, books.stuck(*queues))


def collected(books: Books) -> Cell:
    """Each job that has ended is one result."""
    found = Counter((queue, job_id) for (queue, _), job_id in books.results.items())
    queues = [queue for name in books.place.names for queue in WORKED.get(name, ())]
    ended = [(queue, job.id) for queue in queues for job in books.jobs[queue] if job.state in FINAL]
    return Cell(lost=sum(found[one] == 0 for one in ended), twice=sum(times - 1 for times in found.values()))


#: What each promise says of the jobs of a producer.
BALANCES: dict[str, Callable[[Books, str], Cell]] = {
    "write": _in_row_order,
    "stream": _in_row_order,
    "least": _least,
    "unique": _unique,
    "flow": _flow,
    "batch": _batch,
    "sequence": _sequence,
    "ids": rows_once,
    "manage": _manage,
    "most": _most,
    "added": _added,
}
assert BALANCES.keys() == PRODUCERS.keys()


def balance(books: Books) -> dict[str, Cell]:
    """A cell for each promise."""
    cells = {name: BALANCES[name](books, name) for name in books.place.names}
    for name, cell in cells.items():
        undone = books.place.versions - sum(acked == name for acked, _ in books.acked)
        cells[name] = cell._replace(stuck=cell.stuck + undone)
    return cells | {"worker": worked(books), "results": collected(books)}
