"""The protocols of which all orders are tried: what the parties do, and what must hold after each call and at the end.

At the end of an order, somebody recovers what was left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql.types import StringType, StructType
from redis import Redis

from spark_bull import BullQueue, NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.core.queue.dispatch import registration, write_records
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import KnownWrites, recover, roll_forward
from spark_bull.core.queue.dispatch.write_records import Identity, QueuePlan, StagedChunk, StagedPart, stage_chunks
from spark_bull.core.queue.work import claim as claims
from spark_bull.spark.staging import commit
from tests.proof.history import rows_by_state
from tests.proof.orders import Order, Setting
from tests.proof.work_history import outcomes_of
from tests.support.without_spark import ManageSink, ScheduleSink
from tests.support.work_bench import discover_all, entries
from tests.support.writes import DAY_MS, stage, stage_all

HOUR_MS = 3_600_000
PREFIX = "proof"


class Protocol:
    """A protocol on a server of its own, which each order begins empty. title: for the table."""

    title = ""

    def __init__(self, client: Redis, url: str) -> None:
        self.client = client
        self.url = url
        self.queue = self.open("q")

    def open(self, name: str) -> BullQueue:
        return BullQueue(name, url=self.url, prefix=PREFIX, protocol="bullmq")

    @contextmanager
    def changes(self) -> Iterator[None]:
        """Settings of the package while the protocol runs."""
        yield

    def begin(self) -> Setting:
        raise NotImplementedError

    def end(self, order: Order) -> str:
        """Recovers, and returns what is wrong."""
        raise NotImplementedError

    def rows(self, queue: BullQueue) -> list[str]:
        return [row for rows in rows_by_state(self.client, queue.handle).values() for row in rows]

    def state(self, queue: BullQueue, write_id: str) -> str:
        """The state of a write; nothing if it is not registered."""
        state = (self.client.hget(queue.handle.keys.write(write_id), "state") or b"").decode()
        return "" if state == "prepared" else state

    def lasting(self) -> list[bytes]:
        """The stage keys and manifests that never expire."""
        kept = [*self.client.scan_iter("*:spark:stage:*"), *self.client.scan_iter("*:spark:manifest:*")]
        return [key for key in kept if self.client.ttl(key) == -1]


class SmallWrite(Protocol):
    """A driver writes two chunks; an attempt that was given up goes on; somebody recovers the queue meanwhile."""

    title = "write: driver, zombie attempt and recovery"
    rows_written = ("r0", "r1")

    def begin(self) -> Setting:
        self.client.flushall()
        self.records: list[WriteRecord] = []
        handle = self.queue.handle
        first = stage(handle, "w.0.0", [NewJob({"row": "r0"})])
        packed = self.client.hget(first.stage, "0")

        def driver() -> None:
            parts = [first, stage(handle, "w.1.0", [NewJob({"row": "r1"})])]
            register("w", [QueuePlan(handle, parts, {})], None)
            self.records.append(roll_forward(handle, "w"))

        def zombie() -> None:
            stage(handle, "w.1.1", [NewJob({"row": "zombie"})])
            stage_chunks(handle.connection, [StagedChunk(first.stage, 0, packed)], DAY_MS)

        parties = {"driver": driver, "zombie": zombie, "recovery": lambda: self.records.extend(recover(handle))}
        return Setting(parties, ["driver"], self._check)

    def _check(self) -> str:
        seen = tuple(self.rows(self.queue))
        if seen != self.rows_written[: len(seen)]:
            return f"rows {seen}"
        return f"rows {seen} before the registration" if seen and not self.state(self.queue, "w") else ""

    def end(self, order: Order) -> str:
        recover(self.queue.handle)
        seen, state = tuple(self.rows(self.queue)), self.state(self.queue, "w")
        must = "driver" not in {choice.party for choice in order.choices if choice.dies}
        if seen != (self.rows_written if state or must else ()) or state not in ("", "finished"):
            return f"rows {seen}, the write is {state}, the driver got {order.parties['driver'].error!r}"
        if len({*self.records}) > 1:
            return f"records {self.records}"
        return f"kept {kept}" if (kept := self.lasting()) else ""


class LargeWrite(Protocol):
    """A driver registers a write to two queues in portions; somebody recovers the one that does not lead."""

    title = "large write: driver and recovery of another queue"
    identity: Identity | None = None

    def __init__(self, client: Redis, url: str) -> None:
        super().__init__(client, url)
        self.queues = [self.open("a"), self.open("b")]

    @contextmanager
    def changes(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module in (registration, write_records):
                patch.setattr(module, "KEYS_PER_CALL", 8)
            yield

    def begin(self) -> Setting:
        self.client.flushall()
        plans = []
        for queue in self.queues:
            row = NewJob({"row": f"{queue.name}0"})
            parts: list[StagedPart] = [stage(queue.handle, f"w.{number}.0", [row]) for number in range(2)]
            plans.append(QueuePlan(queue.handle, parts, {}))

        def driver() -> None:
            register("w", plans, self.identity)

        return Setting({"driver": driver, "recovery": lambda: recover(plans[1].handle)}, ["driver"], self._check)

    def _check(self) -> str:
        seen = [row for queue in self.queues for row in self.rows(queue)]
        return f"rows {seen} before the commit point" if seen and not self.state(self.queues[0], "w") else ""

    def recovered(self) -> tuple[bool, list[str]]:
        """Whether the write was registered, and the rows of both queues after a recovery."""
        is_registered = bool(self.state(self.queues[0], "w"))
        for queue in self.queues:
            recover(queue.handle)
        return is_registered, [row for queue in self.queues for row in self.rows(queue)]

    def end(self, order: Order) -> str:
        is_registered, seen = self.recovered()
        must = is_registered or not any(choice.dies for choice in order.choices)
        if seen != (["a0", "a0", "b0", "b0"] if must else []):
            return f"rows {seen}"
        return f"kept {kept}" if is_registered and (kept := self.lasting()) else ""


class TwoVersions(LargeWrite):
    """A driver registers a write to two queues in portions; another one a later version in the second."""

    title = "large write: drivers of two versions"
    identity = Identity("app", 1)

    def begin(self) -> Setting:
        setting = super().begin()
        plan = self._stage_later("later")
        parties = {"driver": setting.parties["driver"], "later": lambda: register("later", [plan], Identity("app", 2))}
        return Setting(parties, ["driver"], lambda: "")

    def _stage_later(self, write_id: str) -> QueuePlan:
        return stage_all(self.queues[1].handle, write_id, [[NewJob({"row": "later"})]])

    def end(self, order: Order) -> str:
        is_registered, seen = self.recovered()
        if register("again", [self._stage_later("again")], Identity("app", 2)):
            return "the later version is not the last one"
        expected = ["a0", "a0", "b0", "b0", "later"] if is_registered else ["later"]
        return "" if sorted(seen) == expected else f"rows {seen}, the first version is registered: {is_registered}"


class Ledger(Protocol):
    """A reader finds, reads and archives results, while a worker ends jobs; one is retried if it is still there."""

    title = "ledger: reader and worker"

    def begin(self) -> Setting:
        self.client.flushall()
        handle = self.queue.handle
        self.ids = self.queue.add_many([NewJob({"row": f"r{n}"}) for n in range(3)]).ids
        claim = claims.work(handle, WorkSettings("slot", lock_ms=HOUR_MS), None, 3)
        self.ledger = ResultLedger(handle, "reader", owner="me")
        self.ledger.open("earliest", create=True)
        self.read: dict[int, str] = {}

        def reader() -> None:
            end = self.ledger.discover().end
            self._read()
            self.ledger.archive(end)
            self.ledger.discover()

        def worker() -> None:
            settle(self.queue, claim.token, [self.ids[0]])
            settle(self.queue, claim.token, [self.ids[1]])
            settle(self.queue, claim.token, [self.ids[2]], "failed")
            self.queue.retry(self.ids[2])

        return Setting({"reader": reader, "worker": worker}, ["reader"], lambda: "")

    def _read(self) -> None:
        start = self.ledger.start() or 0
        for position, (job_id, state) in enumerate(entries(self.ledger, start), start):
            entry = f"{job_id} {state}"
            assert self.read.setdefault(position, entry) == entry, f"{position}: {self.read[position]}, then {entry}"

    def end(self, order: Order) -> str:
        complete_all(self.client, self.queue)
        discover_all(self.ledger)
        self._read()
        first, second, third = self.ids
        expected = Counter([f"{first} completed", f"{second} completed", f"{third} failed"])
        if order.parties["worker"].error is None:
            expected[f"{third} completed"] += 1
        found = Counter(self.read.values())
        return "" if found == expected else f"results {found}"


class Claims(Protocol):
    """A worker claims a job, extends its lock and settles it, while the lock ends and the job is rescued."""

    title = "claim and settle: worker and rescuer"

    def begin(self) -> Setting:
        self.client.flushall()
        handle = self.queue.handle
        [self.id] = self.queue.add_many([NewJob({"row": "r"})]).ids
        self.accepted = 0

        def worker() -> None:
            claim = claims.work(handle, WorkSettings("slot", lock_ms=HOUR_MS), None, 1)
            claims.extend(handle, claim.token, [job.id for job in claim.jobs], HOUR_MS)
            if claim.jobs:
                self.accepted += settle(self.queue, claim.token, [self.id])

        def rescuer() -> None:
            claims.rescue(handle, check_ms=HOUR_MS, max_stalled=100)
            handle.connection.call("DEL", handle.keys.lock(self.id), handle.keys["stalled_check"])
            claims.rescue(handle, check_ms=HOUR_MS, max_stalled=100)

        return Setting({"worker": worker, "rescuer": rescuer}, ["worker"], self._check)

    def _check(self) -> str:
        states = rows_by_state(self.client, self.queue.handle)
        return "" if [*states.values()] == [["r"]] else f"the job is in {states}"

    def end(self, order: Order) -> str:
        self.accepted += complete_all(self.client, self.queue)
        events = self.client.xrange(self.queue.handle.keys["events"])
        ends = [fields for _, fields in events if fields[b"event"] == b"completed"]
        states = rows_by_state(self.client, self.queue.handle)
        if len(ends) != 1 or self.accepted > 1 or states != {"completed": ["r"]}:
            return f"{len(ends)} ends, {self.accepted} outcomes accepted, the job is in {states}"
        return ""


class Schedule(Protocol):
    """A driver writes two job schedulers anew, while a worker claims a current job, which makes the next one."""

    title = "schedule: driver and worker"
    schema = StructType().add("id", StringType()).add("every", StringType())
    ids = ("s", "t")

    def begin(self) -> Setting:
        self.client.flushall()
        commit._known = KnownWrites()
        for scheduler_id in self.ids:
            self.queue.upsert_scheduler(scheduler_id, every=2 * HOUR_MS)
        for job in self.queue.page("delayed"):
            self.queue.promote(job.id)
        options = {"url": self.url, "prefix": PREFIX, "queue": "q", "protocol": "bullmq", "mode": "schedule"}
        sink = ScheduleSink(options | {"chunkSize": "1"}, self.schema)
        sink.task([{"id": scheduler_id, "every": "PT1H"} for scheduler_id in self.ids])

        def worker() -> None:
            claim = claims.work(self.queue.handle, WorkSettings("slot", lock_ms=HOUR_MS), None, 1)
            settle(self.queue, claim.token, [job.id for job in claim.jobs])

        return Setting({"driver": sink.commit, "worker": worker}, ["driver", "worker"], lambda: "")

    def end(self, order: Order) -> str:
        was_registered = any(self.client.scan_iter("*:spark:write:*"))
        recover(self.queue.handle)
        if any(choice.dies and choice.party == "worker" for choice in order.choices):
            complete_all(self.client, self.queue, most=1)
        schedulers = sorted((one.id, one.every) for one in self.queue.schedulers())
        following = [job.id for state in ("wait", "delayed", "prioritized") for job in self.queue.page(state)]
        every = HOUR_MS if was_registered else 2 * HOUR_MS
        if schedulers != [(one, every) for one in self.ids] or len(following) != len(self.ids):
            return f"schedulers {schedulers}, their next jobs {following}"
        return ""


class Manage(Protocol):
    """A driver moves two jobs, and one that does not exist, to another queue; somebody recovers the queue meanwhile."""

    title = "manage: driver and recovery"
    schema = StructType().add("id", StringType()).add("to", StringType())

    def __init__(self, client: Redis, url: str) -> None:
        super().__init__(client, url)
        self.later = self.open("later")

    def begin(self) -> Setting:
        self.client.flushall()
        commit._known = KnownWrites()
        self.queue.add_many([NewJob({"row": f"r{n}"}, job_id=f"key-{n}") for n in range(2)])
        parties = {"driver": self._staged().commit, "recovery": lambda: recover(self.queue.handle)}
        return Setting(parties, ["driver"], self._check)

    def _staged(self) -> ManageSink:
        options = {"url": self.url, "prefix": PREFIX, "queue": "q", "protocol": "bullmq", "mode": "manage"}
        options |= {"action": "move", "chunkSize": "2", "txnAppId": "app", "txnVersion": "1"}
        sink = ManageSink(options, self.schema)
        sink.task([{"id": job_id, "to": "later"} for job_id in ("key-0", "gone", "key-1")])
        return sink

    def _check(self) -> str:
        seen = Counter(self.rows(self.queue) + self.rows(self.later))
        return "" if seen == Counter(["r0", "r1"]) else f"jobs {seen}"

    def end(self, order: Order) -> str:
        was_registered = any(self.client.scan_iter("*:spark:write:*"))
        recover(self.queue.handle)
        moved = self.rows(self.later)
        if sorted(moved) != (["r0", "r1"] if was_registered else []):
            return f"moved {moved}, registered: {was_registered}"
        if was_registered:
            # What a job becomes afterwards is not changed by a repetition of the write.
            self.later.move("key-0", to="q")
        self._staged().commit()
        moved = self.rows(self.later)
        if sorted(moved) != (["r1"] if was_registered else ["r0", "r1"]):
            return f"moved {moved} by a repetition, registered before: {was_registered}"
        counted = [(record.changed, record.missing) for record in self.queue.writes()]
        return "" if counted == [(2, 1)] else f"jobs counted as changed and as missing: {counted}"


PROTOCOLS: tuple[type[Protocol], ...] = (SmallWrite, LargeWrite, TwoVersions, Ledger, Claims, Schedule, Manage)


def settle(queue: BullQueue, token: str, ids: list[str], outcome: str = "completed") -> int:
    """Returns the number of outcomes that were accepted."""
    outcomes = outcomes_of(token, ids, outcome)
    return len(ids) - len(claims.work(queue.handle, WorkSettings("slot"), outcomes, 0).lost)


def complete_all(client: Redis, queue: BullQueue, most: int = 100) -> int:
    """Lets all locks end, and completes the jobs that wait; returns the number of outcomes that were accepted."""
    handle = queue.handle
    for _ in range(2):
        for job_id in client.lrange(handle.keys["active"], 0, -1):
            client.delete(handle.keys.lock(job_id.decode()))
        client.delete(handle.keys["stalled_check"])
        claims.rescue(handle, check_ms=HOUR_MS, max_stalled=100)
    claim = claims.work(handle, WorkSettings("last", lock_ms=HOUR_MS), None, most)
    return settle(queue, claim.token, [job.id for job in claim.jobs])
