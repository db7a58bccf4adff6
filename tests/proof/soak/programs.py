"""What is dispatched: the programs of the table of faults, and some more, again and again until the soak ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql.types import StringType, StructType, TimestampType

from spark_bull.core.errors import SparkBullError
from tests.proof.actors import run_program
from tests.proof.producers import PRODUCERS, WORKED, Place, move, plan, rows_of, writer

#: Jobs that are in Redis at most, so that its memory does not depend on the speed of anything.
MOST_JOBS = 1_500
#: Between two programs, s: leaves the CPU to the other parties.
PAUSE_S = 0.3
#: Job schedulers, with their intervals.
SCHEDULERS = {"tick": "PT1S", "tock": "PT2S"}
TENANTS = 2
#: How many jobs of a tenant run at the same time.
AT_ONCE = 2
PAST, FUTURE = datetime(2001, 1, 1, tzinfo=timezone.utc), datetime(2201, 1, 1, tzinfo=timezone.utc)

_EXPIRING = StructType().add("row", StringType()).add("expireAt", TimestampType())
_TENANTS = StructType().add("row", StringType()).add("tenant", StringType())
_SCRIPTED = StructType().add("row", StringType()).add("$behaviour", StringType())


def expires(row: str) -> bool:
    """Whether the job of a row has expired when it is added."""
    return int(row.rpartition(".")[2]) % 2 == 0


def behaviour(row: str) -> str:
    """What the job of a row does: fails, fails once, or not."""
    return ("fail", "fail:1", "")[int(row.rpartition(".")[2]) % 3]


def _expiring(name: str, version: int) -> list[dict[str, Any]]:
    return [{"row": row, "expireAt": PAST if expires(row) else FUTURE} for row in rows_of(name, version)]


def _of_tenants(name: str, version: int) -> list[dict[str, Any]]:
    return [{"row": row, "tenant": f"t{n % TENANTS}"} for n, row in enumerate(rows_of(name, version))]


def _scripted(name: str, version: int) -> list[dict[str, Any]]:
    return [{"row": row, "$behaviour": behaviour(row)} for row in rows_of(name, version)]


_SHARED = ("write", "stream", "least", "unique", "flow", "batch", "sequence", "most", "added")
PROGRAMS: dict[str, Callable[[Place, int], None]] = {
    **{name: PRODUCERS[name] for name in _SHARED},
    "manage": move,
    "expire": writer("expire", _expiring, _EXPIRING, jobColumns="expireAt"),
    "group": writer("group", _of_tenants, _TENANTS),
    "retry": writer("retry", _scripted, _SCRIPTED, attempts="2", backoff="50"),
    "schedule": partial(plan, schedulers=SCHEDULERS),
}
#: What the Spark driver dispatches: DataFrames, and a stream; the rows of each DataFrame, and of each micro-batch.
FRAMES = ("frame", "frames")
FRAME_ROWS = 20
#: The queues of which jobs are processed, by what adds them.
QUEUES: dict[str, tuple[str, ...]] = {
    **{name: WORKED.get(name, (name,)) for name in (*PROGRAMS, *FRAMES)},
    "manage": ("moved",),
}
ALL_QUEUES = tuple(queue for queues in QUEUES.values() for queue in queues)


def expected(name: str, version: int) -> dict[str, list[str]]:
    """The rows of a version of a program, by queue."""
    rows = {QUEUES[name][0]: rows_of(name, version)}
    if name == "frame":
        rows["frame"] = [f"frame.{version}.{n}" for n in range(FRAME_ROWS)]
    if name == "flow":
        rows["child"] = [f"{row}.{n}" for row in rows["flow"] for n in range(2)]
    if name == "batch":
        rows["callback"] = [f"callback.{version}"]
    return rows


def end(place: Place) -> None:
    """Tells all that dispatch to stop."""
    _over(place).touch()


def is_over(place: Place) -> bool:
    return _over(place).exists()


def _over(place: Place) -> Path:
    return place.notes.path.with_suffix(".over")


def drive(place: Place) -> None:
    """Runs the programs in turn, each version until it has succeeded, and a version as a whole."""
    acked = {(note.name, note.number) for note in place.notes.of("acked")}
    for version in count(1):
        names = [name for name in PROGRAMS if (name, version) not in acked]
        if names == [*PROGRAMS] and is_over(place):
            return
        while _jobs(place) > MOST_JOBS:
            time.sleep(1)
        for name in names:
            run_program(place, name, version, PROGRAMS[name])
            time.sleep(PAUSE_S)


def _jobs(place: Place) -> int:
    """The number of jobs in Redis; of a Redis that cannot be asked, more than there may be."""
    total = 0
    for name in ALL_QUEUES:
        try:
            with place.queue(name) as queue:
                total += sum(queue.counts().values())
        except SparkBullError:
            return MOST_JOBS + 1
    return total
