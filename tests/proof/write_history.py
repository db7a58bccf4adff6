"""Random histories of writes to two queues, with drivers that die and replies that are lost, and a clock that moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from random import Random
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, NewJob, SparkBullError, StagedDataLost
from spark_bull.core.queue.dispatch import registration, write_records
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import advance_all, roll_forward
from spark_bull.core.queue.dispatch.write_records import Identity, QueuePlan, StagedChunk, discard, stage_chunks
from spark_bull.core.store.connection import Connection
from tests.proof.history import CLOCK, History, Op, rows_by_state
from tests.support.traffic import Act, Died, calls_of_scripts
from tests.support.writes import DAY_MS, stage_all

QUEUES = ("a", "b")
HOUR_MS = 3_600_000
#: Keys above which a write to two queues is registered in portions.
FEW_KEYS = 10
STEPS = 25
#: The scripts that set the commit point.
REGISTRATIONS = ("write/register", "write/confirm")

#: The rows of a write, by queue.
Rows = dict[str, tuple[str, ...]]


def write_history(client: Redis, url: str, prefix: str, seed: int, dialect: str = "bullmq") -> History:
    """Writes, recovers and disturbs in a random order; at the end all writes are recovered."""
    client.delete(CLOCK)
    with ExitStack() as stack:
        queues = {
            name: stack.enter_context(BullQueue(name, url=url, prefix=prefix, protocol=dialect)) for name in QUEUES
        }
        for module in (registration, write_records):
            stack.enter_context(pytest.MonkeyPatch.context()).setattr(module, "KEYS_PER_CALL", FEW_KEYS)
        run = _Run(client, queues, Random(seed))
        for _ in range(STEPS):
            run.step()
        run.end()
        return run.history


class _Run:
    def __init__(self, client: Redis, queues: dict[str, BullQueue], random: Random) -> None:
        self.client = client
        self.queues = queues
        self.random = random
        self.history = History()
        self._writes = 0
        self._ids = count(1)
        self._version = 0
        #: The queues of the last write with an identity, which a program can repeat.
        self._last: Rows = {}
        #: Chunks that tasks have staged, the last ones last.
        self._sent: list[StagedChunk] = []
        #: How many days have passed.
        self._days = 0

    def step(self) -> None:
        acts = [self.write, self.write, self.write_again, self.queue_up, self.give_up, self.be_late, self.disturb]
        self.random.choice([*acts, self.recover])()

    def end(self) -> None:
        self.client.delete(CLOCK)
        self.recover()
        self.client.delete(CLOCK)
        for name, queue in self.queues.items():
            self.history.left[name] = rows_by_state(self.client, queue.handle)

    def write(self) -> None:
        """A driver stages, registers and commits rows of one or two queues, and may die or lose a reply."""
        names = self.random.choice([("a",), ("b",), QUEUES])
        if self.random.random() < 0.5:
            self._commit(self._new_rows(names), self._random_faults())
        else:
            self._version += 1
            self._last = self._new_rows(names)
            self.write_again()

    def write_again(self) -> None:
        """A program runs again that has an identity."""
        if self._last:
            self._commit(self._last, self._random_faults(), Identity("app", self._version))

    def queue_up(self) -> None:
        """Several drivers register a write, each by another clock, and die; then somebody recovers the queue."""
        for _ in range(3):
            self._move_clock()
            self._commit(self._new_rows(("a",)), self._faults("die after"))
        self.recover()

    def give_up(self) -> None:
        """A driver is suspended before it sets the commit point, by which time others have given its write up."""

        def meanwhile() -> None:
            self._move_clock(hours=2)
            self.recover(["b"])
            self._move_clock(hours=-2)

        self._move_clock(hours=-2)
        self._commit(self._new_rows(QUEUES), self._faults("none", meanwhile=meanwhile))

    def be_late(self) -> None:
        """A driver dies when it has registered its write; its tasks go on, and only later somebody recovers it."""
        self._commit(self._new_rows(("b",)), self._faults("die after"))
        self._late_chunk()
        self._end_of_stages()
        self.recover()

    def _new_rows(self, names: Sequence[str]) -> Rows:
        self._writes += 1
        return {name: tuple(f"w{self._writes}.{name}.{n}" for n in range(self.random.randint(1, 4))) for name in names}

    def _random_faults(self) -> Act:
        random = self.random
        meanwhile = random.choice([None, self.disturb, self.recover])
        fault = random.choice(["none", "resend", "die before", "die after", "fail before", "fail after"])
        return self._faults(fault, random.choice([None, random.randint(1, 9)]), meanwhile)

    def _faults(self, fault: str, number: int | None = None, meanwhile: Callable[[], None] | None = None) -> Act:
        """The fault of one call of a driver: that with this number, or the one that sets the commit point.

        meanwhile: what others do before this call.
        """
        calls = count(1)
        script = Connection.script

        def act(name: str, call: Callable[[], Any]) -> Any:
            here = next(calls) == number if number else name in REGISTRATIONS
            if here and meanwhile:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(Connection, "script", script)
                    meanwhile()
            if not here or fault == "none":
                return call()
            if "before" not in fault:
                call()
            if fault == "resend":
                return call()
            raise Died if "die" in fault else SparkBullError("Redis could not be reached")

        return act

    def _commit(self, rows: Rows, faults: Act, identity: Identity | None = None) -> None:
        write_id = f"w{next(self._ids)}"
        token = f"app/{identity.version}" if identity else write_id
        with ExitStack() as stack:
            asked = [Op("write", write_id, token, name, given=given) for name, given in rows.items()]
            ops = [stack.enter_context(self.history.op(op)) for op in asked]
            answer = self._write(write_id, rows, identity, faults)
            for op in ops:
                op.answer = answer

    def _write(self, write_id: str, rows: Rows, identity: Identity | None, faults: Act) -> str:
        """Returns what the user sees: added, replayed, refused, or nothing."""
        plans: list[QueuePlan] = []
        try:
            with calls_of_scripts(faults):
                for name, given in rows.items():
                    half = (len(given) + 1) // 2
                    parts = [[NewJob({"row": row}) for row in part] for part in (given[:half], given[half:])]
                    plans.append(stage_all(self.queues[name].handle, write_id, parts, chunk_size=1))
                    self._remember(plans[-1])
                # A driver recovers its queues before; writes of other programs can be registered since.
                if identity or len(plans) > 1:
                    self.recover()
                if not register(write_id, plans, identity):
                    return "replayed"
                for plan in plans:
                    roll_forward(plan.handle, write_id)
                return "added"
        except Died:
            return ""
        except StagedDataLost as error:
            return "refused" if "nothing was written" in str(error) else f"{error}"
        except SparkBullError:
            # As Spark does when the commit fails.
            for plan in plans:
                discard(plan.handle.connection, plan.handle.keys, write_id, [part.stage for part in plan.parts])
            return ""

    def _remember(self, plan: QueuePlan) -> None:
        for part in plan.parts:
            if packed := self.client.hget(part.stage, "0"):
                self._sent.append(StagedChunk(part.stage, 0, packed))

    def recover(self, names: Sequence[str] = QUEUES) -> None:
        for name in names:
            with self.history.op(Op("recover", "recovery", queue=name)) as op:
                lost: list[StagedDataLost] = []
                records = advance_all(self.queues[name].handle, lost.append)
                op.jobs, op.answer = tuple(record.id for record in records), "; ".join(map(str, lost))

    def disturb(self) -> None:
        self.random.choice([self._move_clock, self._end_of_stages, self._late_chunk])()

    def _move_clock(self, hours: int | None = None) -> None:
        """Puts the clock of Redis ahead or back."""
        hours = self.random.choice([-2, -1, 0, 1, 2]) if hours is None else hours
        self.client.set(CLOCK, self._days * DAY_MS + hours * HOUR_MS)

    def _end_of_stages(self) -> None:
        """The time for which staged chunks are kept is over."""
        self._days += 1
        self._move_clock()
        for queue in self.queues.values():
            for key in self.client.scan_iter(queue.handle.keys.stage("*")):
                if 0 <= self.client.pttl(key) <= DAY_MS:
                    self.client.delete(key)

    def _late_chunk(self) -> None:
        """A task that was given up sends a chunk that it has sent before."""
        if self._sent:
            with suppress(SparkBullError):
                stage_chunks(self.queues["a"].handle.connection, [self.random.choice(self._sent[-4:])], DAY_MS)
