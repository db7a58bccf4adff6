"""Which dialect a queue speaks."""

from __future__ import annotations

import logging
from typing import Final

from spark_bull.connection import Connection
from spark_bull.dialects.base import Dialect
from spark_bull.dialects.bull import Bull
from spark_bull.dialects.bull1 import Bull1
from spark_bull.dialects.bullmq import BullMQ
from spark_bull.keys import QueueKeys

log = logging.getLogger("spark_bull")

DIALECTS: Final[dict[str, Dialect]] = {d.name: d for d in (Bull1(), Bull(), BullMQ())}
FALLBACK: Final = "bullmq"


def dialect_of(connection: Connection, keys: QueueKeys, protocol: str) -> Dialect:
    """The dialect called `protocol`, or for `auto` the one that the queue speaks.

    A queue that does not exist yet gets bullmq, which is logged.
    """
    if protocol != "auto":
        return DIALECTS[protocol]
    found = detect(connection, keys)
    if found is None:
        log.info(
            "queue %s does not exist yet: taking protocol %s (option `protocol`)",
            keys.queue,
            FALLBACK,
        )
        found = DIALECTS[FALLBACK]
    return found


def detect(connection: Connection, keys: QueueKeys) -> Dialect | None:
    """The dialect that a queue's keys show, or None when there is no such queue."""
    open_writes, version, max_events, bullmq_keys, completed, failed, bull_keys, counter, *samples = (
        connection.pipeline(
            [
                ("ZRANGE", keys["open_writes"], 0, 0),
                ("HGET", keys["meta"], "version"),
                ("HGET", keys["meta"], "opts.maxLenEvents"),
                ("EXISTS", keys["events"], keys["marker"], keys["pc"], keys["prioritized"]),
                ("TYPE", keys["completed"]),
                ("TYPE", keys["failed"]),
                ("EXISTS", keys["stalled_check"], keys["priority"]),
                ("EXISTS", keys["id"], keys["meta_paused"]),
                ("LINDEX", keys["wait"], 0),
                ("LINDEX", keys["active"], 0),
                ("LINDEX", keys["paused"], 0),
                ("ZRANGE", keys["delayed"], 0, 0),
            ]
        )
    )
    if open_writes and (written := connection.call("HGET", keys.write(open_writes[0].decode()), "dialect")):
        return DIALECTS[written.decode()]
    if version or max_events or bullmq_keys:
        return DIALECTS["bullmq"]
    finished_types = {completed, failed}
    if b"set" in finished_types:
        return DIALECTS["bull-1"]
    if b"zset" in finished_types or bull_keys:
        return DIALECTS["bull"]
    sample = next((s[0] if isinstance(s, list) else s for s in samples if s), None)
    if sample is not None:
        name, attempts = connection.call("HMGET", keys.job(sample.decode()), "name", "attempts")
        return DIALECTS["bull-1" if name is None and attempts is not None else "bull"]
    return DIALECTS["bull"] if counter else None
