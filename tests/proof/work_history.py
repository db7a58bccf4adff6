"""Random histories of a queue: producers, workers that lose their locks or die, a rescuer, and a reader of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Any
from uuid import uuid4

from redis import Redis

from spark_bull import BullQueue, NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Failed, Outcomes, Retried
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.core.queue.work import claim as claims
from tests.proof.history import History, Op, rows_by_state, rows_of
from tests.support.traffic import Died, calls_of_scripts
from tests.support.work_bench import discover_all, entries

#: Locks end only when a history says so.
LOCK_MS = 3_600_000
WORKERS = ("w1", "w2", "w3")
STEPS = 80


@dataclass
class Held:
    """Jobs that a worker believes to hold: their ids and rows."""

    token: str
    jobs: dict[str, str]


def work_history(client: Redis, url: str, prefix: str, seed: int, dialect: str = "bullmq") -> History:
    """Adds, claims, settles, extends, retries, rescues, reads and disturbs in a random order; then ends all jobs."""
    with BullQueue("q", url=url, prefix=prefix, protocol=dialect) as queue:
        run = _Run(client, queue, Random(seed))
        for _ in range(STEPS):
            run.step()
        run.end()
        return run.history


class _Run:
    def __init__(self, client: Redis, queue: BullQueue, random: Random) -> None:
        self.client = client
        self.queue = queue
        self.handle = queue.handle
        self.random = random
        self.history = History()
        self._rows = 0
        self._held: dict[str, list[Held]] = {worker: [] for worker in WORKERS}
        self._row_of: dict[str, str] = {}
        self._ledger = ResultLedger(self.handle, "reader", owner="me")
        self._ledger.open("earliest", create=True)
        self._read_to = 0

    def step(self) -> None:
        acts = [
            self.add,
            self.work,
            self.work,
            self.work,
            self.extend,
            self.lapse,
            self.rescue,
            self.rescue,
            self.retry,
        ]
        self.random.choice([*acts, self.read, self.archive])()

    def end(self) -> None:
        """All locks end; one worker completes what is left; the reader reads all."""
        while self.client.llen(self.handle.keys["active"]) + self.client.llen(self.handle.keys["wait"]):
            self._lapse(self._active())
            self.rescue()
            self.rescue()
            while self._work(WORKERS[0], limit=10):
                pass
            while self._held[WORKERS[0]]:
                self._work(WORKERS[0], held=self._held[WORKERS[0]][0], outcome="completed")
        self.read()
        self.history.left["q"] = rows_by_state(self.client, self.handle)

    def _faulty(self, call: Callable[[], Any]) -> Any:
        """Runs a call whose reply can be lost: it is sent again, or the caller has died before or after it."""
        fault = self.random.choice(["none", "none", "resend", "die before", "die after"])

        def act(name: str, send: Callable[[], Any]) -> Any:
            if fault == "die before":
                raise Died
            reply = send()
            if fault == "resend":
                return send()
            if fault == "die after":
                raise Died
            return reply

        with calls_of_scripts(act):
            return call()

    def add(self) -> None:
        rows = tuple(f"r{self._rows + n}" for n in range(self.random.randint(1, 4)))
        self._rows += len(rows)
        with suppress(Died), self.history.op(Op("write", "producer", rows[0], "q", given=rows)) as op:
            self._faulty(lambda: self.queue.add_many([NewJob({"row": row}) for row in rows]))
            op.answer = "added"

    def work(self) -> None:
        """A worker settles some of the jobs that it believes to hold, and claims others, in one call."""
        worker = self.random.choice(WORKERS)
        settles = self._held[worker] and self.random.random() < 0.5
        held = self.random.choice(self._held[worker]) if settles else None
        outcome = self.random.choice(["completed", "failed", "retried", "returned"])
        with suppress(Died):
            self._work(worker, self.random.randint(0, 3), held, outcome, self._faulty)

    def _work(
        self,
        worker: str,
        limit: int = 0,
        held: Held | None = None,
        outcome: str = "",
        how: Callable[[Callable[[], Any]], Any] = lambda call: call(),
    ) -> int:
        """Returns the number of jobs that were claimed."""
        if held:
            self._held[worker].remove(held)
        settings, call = WorkSettings(worker, lock_ms=LOCK_MS), uuid4().hex
        token = f"{worker}:{call}"
        settled = Op("settle", worker, held.token if held else "", given=tuple(held.jobs.values()) if held else ())
        settled.answer = outcome
        with self.history.op(settled), self.history.op(Op("claim", worker, token, lock_ms=LOCK_MS)) as claimed:
            outcomes = outcomes_of(held.token, held.jobs, outcome) if held else None
            answer = how(lambda: claims.work(self.handle, settings, outcomes, limit, call=call, token=token))
            lost = {one.id for one in answer.lost}
            settled.jobs = tuple(row for job_id, row in held.jobs.items() if job_id not in lost) if held else ()
            rows = rows_of(self.client, self.handle, [job.id.encode() for job in answer.jobs])
            claimed.jobs = tuple(rows)
        if rows:
            jobs = dict(zip((job.id for job in answer.jobs), rows, strict=True))
            self._held[worker].append(Held(token, jobs))
            self._row_of |= jobs
        return len(rows)

    def extend(self) -> None:
        """All workers extend the locks that they believe to hold."""
        for held in chain(*self._held.values()):
            op = Op("extend", "worker", held.token, given=tuple(held.jobs.values()), lock_ms=LOCK_MS)
            with self.history.op(op):
                lost = claims.extend(self.handle, held.token, [*held.jobs], LOCK_MS)
                op.jobs = tuple(row for job_id, row in held.jobs.items() if job_id not in lost)

    def lapse(self) -> None:
        """A worker was suspended, or cut off, for longer than some of its locks."""
        active = self._active()
        self._lapse(self.random.sample(active, self.random.randint(0, len(active))))

    def _lapse(self, ids: list[bytes]) -> None:
        with self.history.op(Op("lapse", "time", jobs=tuple(rows_of(self.client, self.handle, ids)))):
            for job_id in ids:
                self.client.delete(self.handle.keys.lock(job_id.decode()))

    def _active(self) -> list[bytes]:
        active: list[bytes] = self.client.lrange(self.handle.keys["active"], 0, -1)
        return active

    def rescue(self) -> None:
        self.client.delete(self.handle.keys["stalled_check"])
        claims.rescue(self.handle, check_ms=1, max_stalled=1_000)

    def retry(self) -> None:
        """A user lets a failed job run again. Bull keeps no trace of its first end, so the reader has read it."""
        if self.queue.protocol != "bullmq":
            self.read()
        failed = self.queue.handle.keys["failed"]
        is_set = self.client.type(failed) == b"set"
        ids = sorted(self.client.smembers(failed)) if is_set else self.client.zrange(failed, 0, -1)
        if ids:
            job_id = self.random.choice(ids)
            with self.history.op(Op("retry", "user", jobs=tuple(rows_of(self.client, self.handle, [job_id])))):
                self.queue.retry(job_id.decode())

    def read(self) -> None:
        """The reader looks for results and reads them; it can have forgotten those since its last commit."""
        if self.random.random() < 0.3:
            self._read_to = self._ledger.start() or 0
        with self.history.op(Op("deliver", "reader", at=self._read_to)) as op:
            discover_all(self._ledger)
            found = entries(self._ledger, self._read_to)
            op.jobs = tuple(f"{self._row_of[job_id]}@{state}" for job_id, state in found)
        self._read_to += len(found)

    def archive(self) -> None:
        """The reader commits what it has read, and deletes these jobs or only their results."""
        commit = self.random.choice([self._ledger.archive, self._ledger.cut])
        commit(self._read_to)


def outcomes_of(token: str, ids: Iterable[str], outcome: str) -> Outcomes:
    outcomes = Outcomes(token)
    for job_id in ids:
        if outcome == "completed":
            outcomes.complete(job_id, "1")
        elif outcome == "failed":
            outcomes.add_failure(Failed(job_id, "bad", "[]", None, 1))
        elif outcome == "retried":
            outcomes.add_failure(Retried(job_id, "bad", "[]", 0, lifo=False))
        else:
            outcomes.returned.append(job_id)
    return outcomes
