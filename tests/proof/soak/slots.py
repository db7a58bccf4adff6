"""What workers in Python do with a job of the soak, and which jobs are not for all workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.proof.actors import JOB_S
from tests.proof.producers import Notes, Place
from tests.proof.soak.programs import ALL_QUEUES
from tests.support.worker import OurWorker, behave

LOCK_MS = 10_000
#: Only Spark limits groups.
LIMITED = "group"
#: The jobs of the stream are for a query with mode=claim, and for Node.
STREAMED = "frames"
#: Starts of their jobs are noted: those that may run once, and those that must not run when they have expired.
NOTED = ("most", "expire")
#: Node knows no expiry and no groups, and notes nothing.
NOT_FOR_NODE = (LIMITED, *NOTED)


def processor(notes: Notes) -> Callable[[Any], Any]:
    """A function of a job that does what its payload asks for, and notes some starts."""

    def process(job: Any) -> Any:
        queue = job.handle.keys.queue
        if queue in NOTED:
            notes.add("start", queue, job_id=job.id)
        time.sleep(JOB_S)
        return behave(job)

    return process


def work(place: Place) -> None:
    """A slot without Spark."""
    queues = [place.queue(name).handle for name in ALL_QUEUES if name not in (LIMITED, STREAMED)]
    OurWorker(queues, processor(place.notes), chunk_size=3, lock_ms=LOCK_MS).loop.run()
