"""Repeatable jobs of BullMQ 5.9 and older, whose members are name:id:endDate:tz:pattern."""

from __future__ import annotations

import json
import time
from hashlib import md5
from typing import Any

from redis import Redis

from spark_bull.queue.core.handle import QueueHandle

#: Member, options of `repeat`, payload.
OlderJob = tuple[str, dict[str, Any], dict[str, Any]]
DAY = 86_400_000


def make_older(client: Redis, handle: QueueHandle, job: OlderJob) -> str:
    """Makes a repeatable job and its next job, whose id is returned."""
    member, repeat, data = job
    # Later, as a worker would start it at once.
    due = (int(time.time() * 1000) // DAY + 1) * DAY
    keys, name = handle.keys, member.split(":")[0]
    own = repeat.get("key") or md5_of(f"{name}{repeat.get('jobId', '')}{md5_of(member)}")
    job_id = f"repeat:{own}:{due}"
    opts = {"repeat": {**repeat, "count": 1}, "prevMillis": due, "jobId": job_id, "delay": 5, "attempts": 0}
    fields = {
        "name": name,
        "data": json.dumps(data, separators=(",", ":")),
        "opts": json.dumps(opts),
        "timestamp": 1,
        "delay": 5,
    }
    client.hset(keys.job(job_id), mapping={**fields, "priority": 0, "rjk": member})
    client.zadd(keys["delayed"], {job_id: due * 4096})
    client.zadd(keys["repeats"], {member: due})
    return job_id


def md5_of(text: str) -> str:
    return md5(text.encode()).hexdigest()
