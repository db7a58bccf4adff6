"""The least that Python does for the jobs of a slot: bare_slot.py KIND CHUNK JOBS URL

KIND: bare, for a function that does nothing: calls of the size of a claim, whose replies are unpacked; or bare_demo,
for the UDF of the demo: payloads are parsed, and values become JSON, without any call. Prints what one_slot.py prints.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import msgpack
import pyarrow as pa
import pyarrow.json
from redis import Redis

from benchmarks.one_slot import QUEUE, WARM_UP, cpu_of, demo_udf, flights, noop, plain
from spark_bull import BullQueue, RawJson
from spark_bull.core.queue.handle.claim_settings import ClaimSettings
from spark_bull.core.queue.work import verbs
from spark_bull.core.queue.work.claim import CLAIM_BYTES
from spark_bull.core.store.raw_replies import raw_reply
from spark_bull.core.store.scripts import load


def send_bare(client: Redis, chunk: int, url: str) -> Callable[[int], None]:
    """Calls with the arguments of a claim, a recorded reply, which is unpacked, a function, and packed outcomes."""
    with BullQueue(QUEUE, url=url, protocol="bullmq") as queue:
        queue.add_many(plain(chunk))
        settings = ClaimSettings("slot", worker="spark-slot")
        reply = verbs.work(queue.handle, settings, chunk, call="bare", token="bare", most_bytes=CLAIM_BYTES)
    script = load("bullmq/work")
    client.set("reply", reply)
    names, sha = ["reply"] * len(script.keys), client.script_load("return redis.call('GET', KEYS[1])")
    given, call = ["1234567890123"] * (len(script.args) - 1), cast("Callable[[Any], Any]", noop)

    def send(count: int) -> None:
        outcomes: bytes = b""
        for _ in range(count // chunk):
            answer = msgpack.unpackb(raw_reply(client, ("EVALSHA", sha, len(names), *names, *given, outcomes)))
            values = [json.dumps(call(None)) for _ in answer["ids"]]
            outcomes = msgpack.packb({"ids": answer["ids"], "values": values})

    return send


def compute_bare(chunk: int) -> Callable[[int], None]:
    """Parses chunks of flights with Arrow, calls the function of the demo's UDF, and makes JSON of its values."""
    kind = pa.schema([("origin", pa.string()), ("dest", pa.string()), ("dep_delay", pa.float64())])
    options = pa.json.ParseOptions(explicit_schema=kind, unexpected_field_behavior="ignore")
    texts, function = [cast("RawJson", job.data).text for job in flights(chunk)], demo_udf().func

    def compute(count: int) -> None:
        for _ in range(count // chunk):
            text = pa.BufferReader("\n".join(texts).encode())
            table = pa.json.read_json(text, pa.json.ReadOptions(use_threads=False), options)
            values = function(*(column.to_pandas() for column in table.columns))
            rows = zip(values["km"].tolist(), values["score"].tolist(), strict=True)
            _ = [f'{{"km":{km!r},"score":{score!r}}}' for km, score in rows]

    return compute


def main() -> None:
    kind, chunk, jobs, url = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    with Redis.from_url(url) as client:
        act = send_bare(client, chunk, url) if kind == "bare" else compute_bare(chunk)
        act(WARM_UP)
        before, server = time.process_time(), cpu_of(client)
        act(jobs)
        used = {"python": time.process_time() - before, "redis": cpu_of(client) - server}
    print(json.dumps({name: seconds / jobs * 1e6 for name, seconds in used.items()}))


if __name__ == "__main__":
    main()
