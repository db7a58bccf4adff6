"""Half of a pair of UTF-16, as JavaScript cuts emojis: Node keeps it in JSON, and what reads it gets U+FFFD."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType, VariantType, VariantVal
from redis import Redis

from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.core.queue.handle.walk import Slice
from spark_bull.core.queue.work.claim import work
from spark_bull.core.well_formed import well_formed_json
from spark_bull.run.job.running_job import RunningJob
from spark_bull.spark.collect.stream import ResultRange, result_reader
from spark_bull.spark.inspect.source import OpenSlice, batch_reader
from spark_bull.spark.platform.arrow import to_arrow_type
from spark_bull.spark.schemas import SCHEMAS
from spark_bull.spark.work.claim_batch import frame_table
from spark_bull.spark.work.udf_runner import UdfRunner
from tests.conformance.groups import add, claim, ids_of
from tests.conformance.written import struct
from tests.support.node import PEERS, NodePeer, Peer
from tests.support.wait import wait_until
from tests.support.work_bench import WorkBench, discover_all, options_of
from tests.support.worker import OurWorker

HALF, SHOWN, WHOLE = "half \ud83c", "half \ufffd", "whole \U0001f389"
TEXT = json.dumps(HALF)
#: A struct, and a VARIANT, which PySpark reads otherwise.
KINDS = (struct(a=StringType(), b=StringType()), VariantType())
LATEST = [peer for peer in PEERS if peer.alias in ("bull-1.1.3", "bull-4.16.5", "bullmq-6.7.0")]


@pytest.fixture(params=LATEST, ids=str)
def queue(
    request: pytest.FixtureRequest, node: Callable[..., NodePeer], open_queue: Callable[..., BullQueue], prefix: str
) -> BullQueue:
    """A queue with a job 1 that has completed, a job 2 that has failed, and a job 3."""
    peer: Peer = request.param
    library = node(peer.alias, prefix=prefix)

    def add(library: NodePeer, behaviour: str) -> None:
        data = {"a": HALF, "b": WHOLE, "$behaviour": behaviour}
        library.call("add", queue="q", jobs=[{"name": HALF, "data": data, "opts": {"own": HALF, "lifo": True}}])

    add(library, f"progress:{TEXT};return:{TEXT}" if peer.dialect != "bull-1" else f"return:{TEXT}")
    add(library, f"log:{HALF};throw:{HALF}" if peer.dialect != "bull-1" else f"throw:{HALF}")
    queue = open_queue(protocol=peer.dialect)
    library.call("process", queue="q")
    wait_until(lambda: (queue.counts()["completed"], queue.counts()["failed"]) == (1, 1), "both jobs to end")
    # A worker of Bull 1 that has stopped still takes a job.
    library.close()
    add(node(peer.alias, prefix=prefix), "")
    return queue


def read(queue: BullQueue, schema: StructType | None = None, view: str = "jobs") -> list[dict[str, Any]]:
    batches = batch_reader(options_of(queue) | {"view": view}, schema or SCHEMAS[view]).read(OpenSlice(Slice()))
    return sorted(pa.Table.from_batches(batches).to_pylist(), key=lambda row: str(row["id"]))


def plain(value: Any) -> Any:
    """A value of a row: a VARIANT is JSON."""
    is_variant = isinstance(value, dict) and value.keys() == {"value", "metadata"}
    return json.loads(VariantVal(value["value"], value["metadata"]).toJson()) if is_variant else value


def check(rows: list[dict[str, Any]]) -> None:
    """Whether the rows of jobs 1 and 2 have the texts of Node."""
    completed, failed = (next(row for row in rows if row["id"] == job_id) for job_id in ("1", "2"))
    assert (completed["returnvalue"], failed["failedReason"]) == (json.dumps(SHOWN), SHOWN)
    assert failed["stacktrace"][0].startswith(f"Error: {SHOWN}\n")
    for row in (completed, failed):
        assert (json.loads(row["data"])["a"], json.loads(row["data"])["b"]) == (SHOWN, WHOLE)


def test_batches_collects_views_and_objects_show_the_texts(queue: BullQueue, client: Redis) -> None:
    stored = client.hgetall(queue.handle.keys.job("2"))
    check(read(queue))
    for kind in KINDS:
        data = [plain(row["data"]) for row in read(queue, struct(id=StringType(), data=kind))]
        assert [(one["a"], one["b"]) for one in data] == [(SHOWN, WHOLE)] * 3
    values = read(queue, struct(id=StringType(), returnvalue=VariantType()))
    assert plain(values[0]["returnvalue"]) == SHOWN
    ledger = ResultLedger(queue.handle, "reader", owner="me")
    ledger.open("earliest", create=True)
    discover_all(ledger)
    reader = result_reader(options_of(queue), SCHEMAS["jobs"])
    check(pa.Table.from_batches(reader.read(ResultRange("q", "reader", 0, 2))).to_pylist())
    failed = queue.job("2")
    assert failed.stacktrace[0].startswith(f"Error: {SHOWN}\n")
    # Python holds what Node has stored.
    assert failed.data["a"] == HALF
    assert stored == client.hgetall(queue.handle.keys.job("2"))
    assert rb'"half \ud83c"' in stored[b"data"]
    if queue.protocol == "bull-1":
        return
    assert [row["log"] for row in read(queue, view="logs")] == [SHOWN]
    assert json.loads(read(queue)[0]["progress"]) == SHOWN
    if queue.protocol == "bullmq":
        told = {row["event"]: row for row in read(queue, view="events")}
        assert json.loads(told["progress"]["data"]) == json.loads(told["completed"]["returnvalue"]) == SHOWN


def test_a_worker_gets_the_text_and_writes_it_again(queue: BullQueue, client: Redis) -> None:
    # It runs first, as it has `lifo`.
    queue.retry("2")
    ran = []

    def processor(job: RunningJob) -> Any:
        ran.append(job.id)
        job.log(job.data["a"])
        job.update_progress(job.data["a"])
        if job.id == "2":
            raise ValueError(job.data["a"])
        return job.data["a"]

    with OurWorker(queue.handle, processor) as worker:
        wait_until(lambda: (queue.counts()["completed"], queue.counts()["failed"]) == (2, 1), "both jobs to end")
    assert (worker.error, ran) == (None, ["2", "3"])
    for job_id in ("2", "3"):
        assert queue.logs(job_id)[-1] == SHOWN
        assert client.hget(queue.handle.keys.job(job_id), "progress") == TEXT.encode()
    done, failed = queue.job("3"), queue.job("2")
    assert (done.returnvalue, failed.failed_reason) == (HALF, SHOWN)
    assert failed.stacktrace[-1].endswith(f"ValueError: {SHOWN}")


def test_udfs_and_functions_of_data_frames_get_the_text(queue: BullQueue) -> None:
    claim = work(queue.handle, WorkSettings("slot"), None, 1)
    jobs = [RunningJob(job, queue.handle, claim.token) for job in claim.jobs]
    [text] = frame_table(jobs).column("data").to_pylist()
    assert (json.loads(text)["a"], json.loads(text)["b"]) == (SHOWN, WHOLE)

    def seen(*payload: Any) -> str:
        found = payload[0].toPython() if len(payload) == 1 else {"a": payload[0], "b": payload[1]}
        return f"{found['a']}, {found['b']}"

    for kind in KINDS:
        runner = UdfRunner(seen, "row", to_arrow_type(kind), to_arrow_type(StringType()))
        results = [result for part in runner(jobs, ()) for result in part]
        assert [(result.error, json.loads(result.value.text)) for result in results] == [(None, f"{SHOWN}, {WHOLE}")]


def test_a_group_has_the_name_that_is_shown(bench: WorkBench) -> None:
    ids = add(bench.queue, [HALF] * 3)
    assert ids_of(claim(bench)) == ids[:2]
    [group] = bench.queue.groups()
    assert (group.group, group.waiting, group.active) == (SHOWN, 1, 2)


def test_a_job_scheduler_of_bull_goes_on(
    node: Callable[..., NodePeer], client: Redis, redis_url: str, prefix: str
) -> None:
    schedule = {"repeat": {"every": 3_600_000, "jobId": HALF}}
    node("bull-4.16.5", prefix=prefix).call("add", queue="q", jobs=[{"name": HALF, "data": HALF, "opts": schedule}])
    with BullQueue("q", url=redis_url, prefix=prefix, protocol="bull") as queue:
        [first] = queue.page("delayed")
        queue.promote(first.id)
        with OurWorker(queue.handle, lambda job: job.data):
            wait_until(lambda: queue.counts()["completed"] == 1, "the job to complete")
        [following] = queue.page("delayed")
        # The same scheduler: its key, and the part of it in the ids of its jobs.
        assert [scheduler.id for scheduler in queue.schedulers()] == [SHOWN]
        assert following.id.rpartition(":")[0] == first.id.rpartition(":")[0]
        assert following.data == HALF


@pytest.mark.parametrize(
    "text",
    [
        r'{"a":"\ud83c"}',
        r'{"\uDF89\ud83c":["\ud83C\uDf89","\ud83c\ud83c\udf89",7,null]}',
        r'["\\ud83c","\\\ud83c","\\\\ud83c\udf89","\"\\\udf89"]',
        r'"\ud83c\\udf89"',
    ],
)
def test_scripts_read_the_json_that_python_reads(client: Redis, text: str) -> None:
    source = (resources.files("spark_bull.core") / "lua" / "lib" / "values.lua").read_text()
    found = json.loads(client.eval(f"{source} return cjson.encode({{json_of(ARGV[1])}})", 0, text))
    assert found == [json.loads(well_formed_json(text))]
