"""Runs a slot in this process until its queue is empty: one_slot.py KIND CHUNK JOBS URL

KIND: function or udf, which do nothing; demo: its UDF over its flights; empty: calls that claim nothing. Prints a JSON
object: CPU time of Python and of Redis per job or call, µs. Imports no other benchmark, as it also measures other
versions of the package.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql.functions import pandas_udf  # type: ignore[attr-defined]
from pyspark.sql.types import DoubleType, LongType, StringType, StructType
from redis import Redis

from spark_bull import BullQueue, NewJob, RawJson
from spark_bull.core.queue.handle.claim_settings import ClaimSettings
from spark_bull.core.queue.work.claim import work
from spark_bull.run.job.job_runner import FunctionRunner, Runner
from spark_bull.run.slot.slot_plan import SlotPlan, SlotQueuePlan
from spark_bull.run.testing.process_all import ChunkDrain
from spark_bull.spark.programs.demo.flights import airports, dataset
from spark_bull.spark.work.udf_runner import udf_runner

QUEUE: Final = "slot"
#: Jobs or calls before those that are measured.
WARM_UP: Final = 5_000


def plain(count: int) -> Iterator[NewJob]:
    """Jobs of 200 bytes."""
    for number in range(count):
        fields = {"id": number, "carrier": "UA", "origin": "EWR", "note": "x" * 120, "delay": number % 60}
        yield NewJob(RawJson(json.dumps(fields | {"ratio": number / 7}, separators=(",", ":"))), "flight")


def flights(count: int) -> Iterator[NewJob]:
    """The first flights, with ids of their own, as the demo adds them."""
    used = pd.read_csv(dataset() / "flights.csv.zip", nrows=count).convert_dtypes()
    texts = used.to_json(orient="records", lines=True).splitlines()
    for number, (text, carrier) in enumerate(zip(texts, used["carrier"], strict=True)):
        yield NewJob(RawJson(text), carrier, job_id=f"{carrier}-EWR-01-{number}", attempts=3)


def noop(_job: Any) -> None:
    return None


@pandas_udf(StringType())  # type: ignore[call-overload, untyped-decorator, unused-ignore]
def noop_udf(payload: pd.DataFrame) -> pd.Series:
    return pd.Series([None] * len(payload))


def demo_udf() -> Any:
    """The UDF of the demo."""
    places = airports()

    @pandas_udf(StructType().add("km", DoubleType()).add("score", DoubleType()))  # type: ignore[untyped-decorator]
    def rate(origin: pd.Series, dest: pd.Series, dep_delay: pd.Series) -> pd.DataFrame:
        unknown = (np.nan, np.nan)
        lat1, lon1 = np.radians(np.array([places.get(code, unknown) for code in origin])).T
        lat2, lon2 = np.radians(np.array([places.get(code, unknown) for code in dest])).T
        h = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
        km = 2 * 6371 * np.arcsin(np.sqrt(h))
        return pd.DataFrame({"km": km, "score": np.tanh(dep_delay / 60) * np.log1p(km)})

    return rate


def runner_of(kind: str) -> Runner:
    if kind == "function":
        return FunctionRunner(noop)
    if kind == "udf":
        payload = StructType().add("id", LongType()).add("carrier", StringType()).add("origin", StringType())
        payload = payload.add("note", StringType()).add("delay", LongType()).add("ratio", DoubleType())
        return udf_runner(noop_udf, payload, 0)
    flight = StructType().add("origin", StringType()).add("dest", StringType()).add("dep_delay", DoubleType())
    return udf_runner(demo_udf(), flight, 0)


def main() -> None:
    kind, chunk, jobs, url = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    with BullQueue(QUEUE, url=url, protocol="bullmq", chunk_size=1_000) as queue, Redis.from_url(url) as client:
        keys = queue.handle.keys
        settings = ClaimSettings("slot", worker="spark-slot", control=keys.control("x"), counters=keys.counters("x"))

        def call_often(count: int) -> None:
            for _ in range(count):
                work(queue.handle, settings, None, chunk)

        def work_off(count: int) -> None:
            runner = runner_of(kind)
            plan = SlotPlan((SlotQueuePlan(queue.handle, settings),), "slot", runner, chunk)
            ChunkDrain(plan, 0, FunctionRunner(noop)).run()

        act: Callable[[int], None] = call_often if kind == "empty" else work_off
        for count in (WARM_UP, jobs):
            if kind != "empty":
                queue.add_many(flights(count) if kind == "demo" else plain(count))
            before, server = time.process_time(), cpu_of(client)
            act(count)
            used = {"python": time.process_time() - before, "redis": cpu_of(client) - server}
            counts = queue.counts()
            assert not counts["wait"] + counts["active"] + counts["failed"], f"expected completed jobs, got {counts}"
            if kind == "demo":
                # Its jobs have the same ids again.
                queue.obliterate(force=True)
    print(json.dumps({name: seconds / jobs * 1e6 for name, seconds in used.items()}))


def cpu_of(client: Redis) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


if __name__ == "__main__":
    main()
