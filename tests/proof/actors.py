"""The processes under a fault: driver, worker, services, and reader of results. Each can be killed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

from spark_bull import OptionError, Promoter, RunningJob, SparkBullError
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import CollectOptions
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.run.services.collector import Collector
from tests.proof.producers import PRODUCERS, RETRY_MS, WORKED, Place
from tests.support.forked_programs import CONTEXT
from tests.support.node import NodePeer
from tests.support.worker import OurWorker

CONTEXT.set_forkserver_preload(["tests.proof.actors"])
LOCK_MS = 2_000
CHECK_MS = 500
#: How long a job takes, s.
JOB_S = 0.002
#: Time between two tries of a program that has failed, s.
AGAIN_S = 0.2


class Actor:
    """A function of a place in a process, which starts again when it has died."""

    def __init__(self, run: Callable[[Place], None], place: Place) -> None:
        self._run, self._place = run, place
        self._start()

    def _start(self) -> None:
        self._process = CONTEXT.Process(target=self._run, args=(self._place,), daemon=True)
        self._process.start()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def has_ended(self) -> bool:
        """Whether it has come to its end; starts it again if it has died."""
        if self._process.is_alive():
            return False
        if self._process.exitcode == 0:
            return True
        self._start()
        return False


class NodeWorker:
    """A worker of BullMQ on some queues. lock_ms: how long its locks last; it rescues jobs as often as they stall."""

    def __init__(self, place: Place, queues: Sequence[str], lock_ms: int) -> None:
        self._place, self._queues = place, queues
        self._stalled = {"stalledInterval": CHECK_MS, "maxStalledCount": 1_000, "lockDuration": lock_ms}
        self._start()

    def _start(self) -> None:
        self._peer = NodePeer("bullmq-6.7.0", self._place.url, self._place.prefix)
        for queue in self._queues:
            self._peer.call("process", queue=queue, opts=self._stalled, events=[])

    @property
    def pid(self) -> int:
        return self._peer.process.pid

    def kill(self) -> None:
        self._peer.kill()
        self._peer.close()

    def has_ended(self) -> bool:
        if not self._peer.process.alive:
            self._peer.close()
            self._start()
        return False


def worked_queues(place: Place) -> list[str]:
    return [queue for name in place.names for queue in WORKED.get(name, ())]


def drive(place: Place) -> None:
    """Runs each version of each program until it has succeeded, those that have succeeded before not again."""
    acked = {(note.name, note.number) for note in place.notes.of("acked")}
    for version in range(1, place.versions + 1):
        for name in place.names:
            if (name, version) not in acked:
                run_program(place, name, version, PRODUCERS[name])


def run_program(place: Place, name: str, version: int, produce: Callable[[Place, int], None]) -> None:
    """Runs a version of a program until it has succeeded, and notes that."""
    while True:
        try:
            produce(place, version)
        except OptionError:
            raise
        except SparkBullError:
            time.sleep(AGAIN_S)
            continue
        place.notes.add("acked", name, number=version)
        return


def work(place: Place) -> None:
    """A slot on all queues; its clock may be wrong."""
    if place.clock_ms:
        right, right_ns = time.time, time.time_ns
        time.time = lambda: right() + place.clock_ms / 1000
        time.time_ns = lambda: right_ns() + place.clock_ms * 1_000_000

    def process(job: RunningJob) -> None:
        queue, row = job.handle.keys.queue, job.data["row"]
        place.notes.add("start", queue, job_id=job.id, row=row)
        time.sleep(JOB_S)

    handles = [place.queue(name).handle for name in worked_queues(place)]
    OurWorker(handles, process, chunk_size=3, lock_ms=LOCK_MS).loop.run()


def keep(place: Place) -> None:
    """Promotes, rescues stalled jobs however often they have stalled, and recovers writes."""
    options = {"prefix": place.prefix, "protocol": "bullmq", "check_ms": CHECK_MS, "max_stalled": 1_000}
    names = [*worked_queues(place), "manage", "moved", "schedule"]
    with Promoter(place.url, names, retry_ms=RETRY_MS, **options):
        Event().wait()


def read(place: Place) -> None:
    """Reads results with a checkpoint: a position is saved after the results before it."""
    saved = Path(f"{place.notes.path}.checkpoint")
    queues = worked_queues(place)
    raw = {"url": place.url, "prefix": place.prefix, "queue": ",".join(queues), "protocol": "bullmq"}
    raw |= {"startingOffsets": "earliest", "retryMs": str(RETRY_MS), "failOnDataLoss": "false"}
    done: dict[str, int] = json.loads(saved.read_text()) if saved.exists() else {}
    collector = Collector(parse_options(raw, CollectOptions), "reader")
    rows = {name: ResultLedger(place.queue(name).handle, "reader").rows([]) for name in queues}
    while True:
        ends = collector.advance(done, None)
        for name, end in ends.items():
            position = done.get(name, 0)
            while position < end:
                after, chunk = rows[name].read(position, end)
                for number, job_id in enumerate(chunk.columns["id"] if chunk.rows else (), after - chunk.rows):
                    place.notes.add("result", name, number=number, job_id=job_id.decode())
                if after <= position:
                    break
                position = after
        done = dict(ends)
        new = saved.with_suffix(".new")
        new.write_text(json.dumps(done))
        os.replace(new, saved)
        time.sleep(0.05)
