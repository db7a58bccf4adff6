"""What a version leaves in Redis when its processes die. Later versions read it in test_upgrade.py.

python -m tests.integration.upgrade 1.1.0     with the oldest server; writes tests/integration/left_behind/1.1.0.json
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from socket import gethostname
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType
from redis import Redis

from spark_bull import BullQueue, LocalWorker, NewJob
from spark_bull.core.model.guards import Guard
from spark_bull.core.model.limits import GroupLimits, WorkSettings
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.call.caller import Caller
from spark_bull.core.queue.dispatch import registration
from spark_bull.core.queue.dispatch.roll_forward import commit
from spark_bull.core.queue.work.verbs import guard
from spark_bull.spark.collect.events import EventStreamReader, event_reader
from spark_bull.spark.collect.stream import ResultReader, result_reader
from spark_bull.spark.schemas import SCHEMAS
from tests.support.dump import read_keys
from tests.support.job_order import graph_sink, rows_of
from tests.support.traffic import Died, calls_of_scripts
from tests.support.wait import wait_until
from tests.support.without_spark import ClaimingQuery, ManageSink, ScheduleSink, Sink
from tests.support.work_bench import DIALECTS, WorkBench, completed, failed_for
from tests.support.writes import register_all, stage
from tools.servers import OLDEST

FOLDER: Final = Path(__file__).with_name("left_behind")
PREFIX: Final = "left"
#: Keys that expire sooner are gone before an upgrade.
_LEAST_TTL_MS: Final = 300_000
HOUR_MS: Final = 3_600_000
#: In the environment while the objects are made and read.
SECRET: Final = {"LEFT_SECRET": "ab" * 32}
GRAPH: Final = {"last": ["left", "right"], "left": ["first"], "first": [], "right": ["first"]}
GUARD: Final = Guard("guarded", "failedRate > 0.5 over 1m", resume_after_s=300, min_jobs=4)
#: The time of the guard, which the tests give, ms since 1970.
GUARDED_MS: Final = 1_700_000_000_000
ROWS: Final = StructType().add("n", IntegerType()).add("queue", StringType()).add("key", StringType())
_CHILD: Final = StructType().add("queue", StringType()).add("data", StringType())
_FLOWS: Final = StructType().add("data", StringType()).add("children", ArrayType(_CHILD))
_SCHEDULERS: Final = StructType().add("id", StringType()).add("pattern", StringType()).add("data", StringType())
_CHANGES: Final = StructType().add("id", StringType())


class Place:
    """The Redis, the folder of the objects, and what only checkpoints know."""

    def __init__(self, url: str, folder: Path, facts: Mapping[str, Any] | None = None) -> None:
        self.url, self.client, self.facts = url, Redis.from_url(url), facts or {}
        self.sealed = {"encrypt_with": "a=env:LEFT_SECRET", "offload_to": str(folder), "offload_above": 300}

    def options(self, queue: str, protocol: str = "bullmq", **given: str) -> dict[str, str]:
        """The options of a write or read in Spark."""
        return {"url": self.url, "prefix": PREFIX, "queue": queue, "protocol": protocol, **given}

    def queue(self, name: str, protocol: str = "bullmq", **given: Any) -> BullQueue:
        return BullQueue(name, url=self.url, prefix=PREFIX, protocol=protocol, **given)

    def bench(self, name: str, protocol: str = "bullmq") -> WorkBench:
        return WorkBench(self.queue(name, protocol), self.client, twice=False)


@contextmanager
def dying_at(script: str, number: int = 1) -> Iterator[None]:
    """The process dies before this call of a script of the block."""
    left = number

    def act(name: str, call: Callable[[], Any]) -> Any:
        nonlocal left
        left -= name.endswith(f"/{script}")
        if left == 0:
            raise Died
        return call()

    with calls_of_scripts(act):
        try:
            yield
        except Died:
            return
        raise AssertionError(f"{script} was not called {number} times")


def _die(sink: Sink, rows: Sequence[dict[str, Any]], script: str, number: int = 1) -> None:
    """Writes rows in two tasks; the driver dies before a call of a script."""
    for part in (rows[::2], rows[1::2]):
        sink.task(part)
    with dying_at(script, number):
        sink.commit()


def _write(sink: Sink, rows: Sequence[dict[str, Any]]) -> None:
    sink.task(rows)
    sink.commit()


def _numbers(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, "queue": None, "key": None, **more} for n in range(count)]


def leave_writes(place: Place) -> None:
    """Writes of each kind, committed in part, or only prepared."""
    for dialect in DIALECTS:
        handle = place.queue(f"open-{dialect}", dialect).handle
        register_all(handle, "w", [[NewJob({"n": n}) for n in range(30)]], 10)
        assert commit(handle, "w", 0).position == 10
    children = [{"queue": "pages", "data": str(n)} for n in range(2)]
    flows = [{"data": str(n), "children": children} for n in range(4)]
    _die(Sink(place.options("flows", chunkSize="2"), _FLOWS), flows, "commit_flows", 2)
    for queue in ("graph", "relays", "released"):
        sink = graph_sink(place.options(queue, chunkSize="2"), rows_of(GRAPH))
        with dying_at("commit_graph", 2) if queue == "graph" else nullcontext():
            sink.commit()
    bench = place.bench("released")
    bench.work(completed(bench.claim()))
    schedulers = [{"id": f"s{n}", "pattern": "0 0 * * *", "data": str(n)} for n in range(4)]
    sink = ScheduleSink(place.options("scheduled", mode="schedule", chunkSize="1"), _SCHEDULERS)
    _die(sink, schedulers, "commit_schedules", 3)
    place.queue("managed").add_many([NewJob(n, job_id=f"m{n}") for n in range(4)])
    with TemporaryDirectory() as results:
        given = {"mode": "manage", "action": "remove", "resultPath": results, "chunkSize": "1"}
        changes = [{"id": f"m{n}"} for n in range(4)]
        _die(ManageSink(place.options("managed", **given), _CHANGES), changes, "commit_managed", 3)
    callback = '{"queue": "reports", "data": {"day": 1}}'
    _die(Sink(place.options("called-back", onFinish=callback, chunkSize="2"), ROWS), _numbers(6), "commit", 3)
    given = {"keepIds": "true", "txnAppId": "nightly", "txnVersion": "7"}
    _write(Sink(place.options("known", **given), ROWS), _numbers(3))
    stage(place.queue("staged").handle, "gone.0.0", [NewJob(1)])
    for start, script, valid_ms in (("undecided", "confirm", 1), ("confirmed", "open", HOUR_MS)):
        own = [row for name in "ab" for row in _numbers(12, queue=f"{start}-{name}")]
        options = place.options("", jobColumns="queue")
        del options["queue"]
        sink = Sink(options, ROWS)
        with patch.object(registration, "KEYS_PER_CALL", 10), patch.object(registration, "VALID_MS", valid_ms):
            _die(sink, own, script)


def leave_results(place: Place) -> Mapping[str, Any]:
    """Ledgers of results, of which a batch is planned; its offsets and ids by dialect."""
    facts = {}
    for dialect in DIALECTS:
        bench = place.bench(f"results-{dialect}", dialect)
        bench.add(5)
        bench.work(failed_for(bench.claim(1), "bad"))
        bench.work(completed(bench.claim(2)))
        reader = result_reader(place.options(bench.queue.name, dialect, maxJobsPerTrigger="2"), SCHEMAS["jobs"])
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        ids = read_ids(reader, start, end)
        assert len(ids) == 2
        reader._collector(end["reader"]).close()
        bench.work(completed(bench.claim(2)))
        facts[dialect] = {"start": start, "end": end, "ids": ids}
    return facts


def leave_events(place: Place) -> Mapping[str, Any]:
    """A query of events that has planned its first batch."""
    reader = events_of(place)
    start = reader.initialOffset()
    return {"start": start, "end": reader.latestOffset(start, reader.getDefaultReadLimit())}


def events_of(place: Place) -> EventStreamReader:
    given = {"startingOffsets": "earliest", "maxEventsPerTrigger": "5"}
    return event_reader(place.options("results-bullmq", view="events", **given), SCHEMAS["events"])


def read_ids(reader: ResultReader | EventStreamReader, start: Any, end: Any) -> list[str]:
    """The ids of the jobs, or events, of a batch."""
    batches = [rows for part in reader.partitions(start, end) for rows in reader.read(part)]
    return [row["id"] for rows in batches for row in rows.to_pylist()]


def leave_claims(place: Place) -> Mapping[str, Any]:
    """A query that has claimed five jobs, and settled one; a failed one of these has run again."""
    queue = place.queue("claims")
    queue.add_many([NewJob({"n": n}, attempts=2) for n in range(6)])
    query = ClaimingQuery(queue, lockMs=HOUR_MS, maxJobsPerTrigger=5)
    rows = query.batch()
    first, second = rows[:2]
    query.settle({**first, "returnvalue": "1"}, {**second, "error": "busy"})
    query.close()
    return {"start": query.start, "end": query.end, "settled": [first["id"], second["id"]]}


def leave_queues(place: Place) -> None:
    """Job schedulers, sequences, groups, shards, guards, and what else a queue has."""
    for dialect in DIALECTS[1:]:
        place.queue(f"daily-{dialect}", dialect).upsert_scheduler("report", pattern="0 0 * * *", data={"n": 1})
    rows = [{"n": n, "queue": None, "key": key} for n, key in enumerate("aabab")]
    _write(Sink(place.options("sequences", sequenceBy="key"), ROWS), rows)
    bench = place.bench("sequences")
    bench.work(completed(bench.claim(2)))
    for limits in (GroupLimits("tenant", concurrency=2), GroupLimits("tenant", max=3, duration_ms=HOUR_MS)):
        settings = WorkSettings("slot", lock_ms=HOUR_MS, group=limits)
        bench = place.bench(f"groups-{limits.max or 0}")
        bench.queue.add_many([NewJob({"tenant": tenant}) for tenant in "aaaaabbbbbc"])
        found = bench.claim(6, work_settings=settings)
        bench.queue.set_group_limit("a", concurrency=1)
        bench.queue.pause_group("c")
        outcomes = Outcomes(found.token)
        outcomes.complete(found.jobs[0].id, "1")
        bench.work(outcomes, work_settings=settings)
    _write(Sink(place.options("logical", shards="2"), ROWS), _numbers(4))
    place.queue("expiring").add({}, expire_after_ms=1)
    place.queue("closed").add({})
    place.queue("closed").close_intake()
    bench = place.bench("guarded")
    guard(bench.handle, GUARD, now=GUARDED_MS)
    bench.add(4)
    bench.work(failed_for(bench.claim(4), "bad"))
    assert guard(bench.handle, GUARD, now=GUARDED_MS + 2_000).done == "paused"
    bench = place.bench("damaged")
    # Its hash is gone, and its id is a text.
    bench.add()
    place.client.delete(bench.handle.keys.job("1"))
    place.client.set(bench.handle.keys.job("1"), "no job")
    bench.claim()
    bench = place.bench("cancelled")
    bench.add()
    # The token of a slot of a worker.
    (job,) = bench.claim(work_settings=WorkSettings("ab:0", lock_ms=HOUR_MS)).jobs
    bench.queue.cancel(job.id, "not needed")


def leave_workers(place: Place) -> None:
    """A worker that was paused, and one that has ended."""
    queue = place.queue("worked")
    queue.add({})
    with LocalWorker("worked", lambda job: 1, url=place.url, prefix=PREFIX) as worker:
        wait_until(lambda: queue.counts()["completed"], "the job to complete")
        worker.pause()


def leave_calls(place: Place) -> None:
    """A caller with pending and ended calls, by dialect."""
    for dialect in DIALECTS[1:]:
        bench = place.bench(f"calls-{dialect}", dialect)
        caller = caller_of(bench)
        caller.hold()
        caller.add(caller.calls(["1", "2", "3"], range(3)))
        bench.work(completed(bench.claim(2), '"done"'))


def caller_of(bench: WorkBench) -> Caller:
    return Caller(bench.handle, "caller-0", keep_ms=24 * HOUR_MS, defaults={}, details=bench.bullmq)


def leave_objects(place: Place) -> None:
    """Payloads and results that are sealed, and stored outside of Redis."""
    queue = place.queue("sealed", **place.sealed)
    queue.add_many([NewJob({"text": "short"}), NewJob({"text": "long " * 100})])
    queue.complete(queue.add({"text": "result"}), "long " * 100)


def leave(place: Place) -> dict[str, Any]:
    """Leaves all of it; returns what only a checkpoint would know."""
    leave_writes(place)
    leave_queues(place)
    leave_workers(place)
    leave_calls(place)
    leave_objects(place)
    return {"results": leave_results(place), "events": leave_events(place), "claims": leave_claims(place)}


def load(file: Path, url: str, folder: Path) -> Place:
    """Writes the keys of a version to a server, and its objects to a folder."""
    left = json.loads(file.read_text("utf-8"))
    place = Place(url, folder, left["facts"])
    with place.client.pipeline(transaction=False) as pipeline:
        for name, kind, ttl_ms, value in left["keys"]:
            key = name.encode(errors="surrogateescape")
            for command in _WRITES[kind](value):
                pipeline.execute_command(command[0], key, *(_raw(part) for part in command[1:]))
            if ttl_ms >= 0:
                pipeline.pexpire(key, ttl_ms)
        pipeline.execute()
    for path, content in left["objects"].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content, "utf-8")
    return place


def _raw(part: Any) -> Any:
    return part.encode(errors="surrogateescape") if isinstance(part, str) else part


#: The commands that write a value, without its key.
_WRITES: Final[Mapping[str, Callable[[Any], list[list[Any]]]]] = {
    "string": lambda value: [["SET", value]],
    "list": lambda items: [["RPUSH", *items]],
    "set": lambda items: [["SADD", *items]],
    "zset": lambda pairs: [["ZADD", *(part for member, score in pairs for part in (repr(score), member))]],
    "hash": lambda fields: [["HSET", *(part for pair in fields.items() for part in pair)]],
    "stream": lambda entries: [
        ["XADD", number, *(p for pair in fields.items() for p in pair)] for number, fields in entries
    ],
}


def main(version: str) -> None:
    with TemporaryDirectory() as objects, OLDEST.fetch() as server, patch.dict(os.environ, SECRET):
        folder = Path(objects)
        place = Place(server.url, folder)
        facts = leave(place)
        keys = [key for key in read_keys(place.client, f"{PREFIX}:*") if not 0 <= key[2] < _LEAST_TTL_MS]
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        stored = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in paths}
        # A slot says on which machine it runs.
        lines = ",\n".join(map(json.dumps, keys)).replace(f"{gethostname()}:{os.getppid()}", "host:1")
        head = json.dumps({"server": server.server, "facts": facts, "objects": stored})
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{version}.json").write_text(f'{head[:-1]}, "keys": [\n{lines}\n]}}\n', "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
