"""What the driver under a fault does for each promise: one version of a program, which runs again when it has died.

The driver calls the sink as Spark does, without a JVM: tasks, then the commit. With `zombies`, an attempt of each task
that Spark has given up writes the same rows, also after the commit.

The processes note what they do in one file: a line of JSON each, which a kill leaves out or leaves whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any, Literal, NamedTuple

from pyspark.sql.types import ArrayType, StringType, StructType

from spark_bull import BullQueue, NewJob
from spark_bull.core.queue.dispatch.write_records import Identity
from tests.support.without_spark import ManageSink, ScheduleSink, Sink

ROWS_PER_VERSION = 6
TASKS = 2
KEYS = 3
RETRY_MS = 60_000

_ROW = StructType().add("row", StringType())
ROWS = StructType().add("row", StringType()).add("key", StringType())
ROWS_WITH_ID = StructType().add("row", StringType()).add("jobId", StringType())
CHILD = StructType().add("data", _ROW).add("queue", StringType())
FLOWS = StructType().add("data", _ROW).add("children", ArrayType(CHILD))
CHANGES = StructType().add("id", StringType()).add("to", StringType())
SCHEDULES = StructType().add("id", StringType()).add("every", StringType())


@dataclass(frozen=True)
class Place:
    """Where the processes under a fault work, and on what. Picklable. names: of producers."""

    url: str
    prefix: str
    notes: Notes
    versions: int
    names: tuple[str, ...]
    zombies: bool = False
    clock_ms: int = 0

    def queue(self, name: str) -> BullQueue:
        return BullQueue(name, url=self.url, prefix=self.prefix, protocol="bullmq", retry_ms=RETRY_MS)


def rows_of(name: str, version: int) -> list[str]:
    return [f"{name}.{version}.{n}" for n in range(ROWS_PER_VERSION)]


def save(
    place: Place,
    queue: str,
    rows: Sequence[dict[str, Any]],
    schema: StructType = ROWS,
    kind: Callable[..., Sink] = Sink,
    batch: Identity | None = None,
    **options: str,
) -> None:
    """Writes rows as Spark does, in two tasks."""
    own = {"url": place.url, "prefix": place.prefix, "protocol": "bullmq", "queue": queue, "retryMs": str(RETRY_MS)}
    own |= {"chunkSize": "2", "failOnDataLoss": "false", **options}
    sink = kind(own, schema, batch)
    parts = [rows[len(rows) * n // TASKS : len(rows) * (n + 1) // TASKS] for n in range(TASKS)]
    try:
        for part in parts:
            if place.zombies:
                sink.attempt(part)
            sink.task(part)
        sink.commit()
    except Exception:
        sink.abort()
        raise
    if place.zombies:
        sink.attempt(parts[0])


def plain(name: str, version: int) -> list[dict[str, Any]]:
    return [{"row": row, "key": f"k{n % KEYS}"} for n, row in enumerate(rows_of(name, version))]


def once(name: str, version: int) -> dict[str, str]:
    """The options by which a version of a program writes once."""
    return {"txnAppId": name, "txnVersion": str(version)}


def writer(
    name: str, rows: Callable[[str, int], list[dict[str, Any]]] = plain, schema: StructType = ROWS, **options: str
) -> Callable[[Place, int], None]:
    """A program that writes each of its versions once."""
    return lambda place, version: save(place, name, rows(name, version), schema, **once(name, version), **options)


def _stream(place: Place, version: int) -> None:
    save(place, "stream", plain("stream", version), batch=Identity("query", version - 1))


def _flows(name: str, version: int) -> list[dict[str, Any]]:
    return [
        {"data": {"row": row}, "children": [{"data": {"row": f"{row}.{n}"}, "queue": "child"} for n in range(2)]}
        for row in rows_of(name, version)
    ]


def _on_finish(place: Place, version: int) -> None:
    callback = {"name": "done", "queue": "callback", "data": {"row": f"callback.{version}"}}
    writer("batch", onFinish=json.dumps(callback))(place, version)


def _with_ids(place: Place, version: int) -> None:
    """The program has no identity, and writes its rows twice."""
    rows = [{"row": row, "jobId": row} for row in rows_of("ids", version)]
    for _ in range(2):
        save(place, "ids", rows, ROWS_WITH_ID, jobColumns="jobId")


def move(place: Place, version: int) -> None:
    rows = [{"row": row, "jobId": row} for row in rows_of("manage", version)]
    save(place, "manage", rows, ROWS_WITH_ID, jobColumns="jobId", **once("new", version))
    changes = [{"id": row["jobId"], "to": "moved"} for row in rows]
    save(place, "manage", changes, CHANGES, ManageSink, mode="manage", action="move", **once("move", version))


def plan(place: Place, version: int, schedulers: Mapping[str, str]) -> None:
    """schedulers: the interval of each, by its id."""
    rows = [{"id": name, "every": every} for name, every in schedulers.items()]
    save(place, "schedule", rows, SCHEDULES, ScheduleSink, mode="schedule", **once("plan", version))


def _manage(place: Place, version: int) -> None:
    move(place, version)
    plan(place, version, {f"s{version}": "PT1H"})


def _add(place: Place, version: int) -> None:
    """The program has no identity, and does not run again: it has added the rows, or it is not known."""
    if version not in {note.number for note in place.notes.of("begun") if note.name == "added"}:
        place.notes.add("begun", "added", number=version)
        with place.queue("added") as queue:
            queue.add_many([NewJob({"row": row}) for row in rows_of("added", version)])
        place.notes.add("acked", "add_many", number=version)


PRODUCERS: dict[str, Callable[[Place, int], None]] = {
    "write": writer("write"),
    "stream": _stream,
    "least": writer("least", delivery="at-least-once"),
    "unique": writer("unique", uniqueBy="key"),
    "flow": writer("flow", _flows, FLOWS),
    "batch": _on_finish,
    "sequence": writer("sequence", sequenceBy="key"),
    "ids": _with_ids,
    "manage": _manage,
    "most": writer("most", delivery="at-most-once"),
    "added": _add,
}
#: The queues of which workers process the jobs, by what the producers are named.
WORKED = {name: (name,) for name in PRODUCERS if name != "manage"} | {
    "flow": ("flow", "child"),
    "batch": ("batch", "callback"),
}


#: begun, acked: a promise's version of the driver. start: a job of a worker. result: an entry of the reader.
What = Literal["begun", "acked", "start", "result"]


class Note(NamedTuple):
    """name: promise or queue. number: version, or position of a result. at: time of the machine, ns."""

    what: What
    name: str
    number: int = 0
    job_id: str = ""
    row: str = ""
    at: int = 0


class Notes:
    """The file. Picklable."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, what: What, name: str, **more: Any) -> None:
        line = json.dumps(Note(what, name, **more, at=monotonic_ns())) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def all(self) -> list[Note]:
        if not self.path.exists():
            return []
        return [Note(*json.loads(line)) for line in self.path.read_text().splitlines()]

    def of(self, what: What) -> Iterator[Note]:
        return (note for note in self.all() if note.what == what)
