"""Claims by groups of jobs, as slots of workers make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import GroupLimits, WorkSettings
from spark_bull.core.model.outcomes import Claim, Delayed, Failed, Outcomes, Retried
from spark_bull.core.queue.bull_queue import BullQueue
from tests.support.work_bench import WorkBench, completed

HOUR_MS = 3_600_000
TWO_AT_ONCE = GroupLimits("tenant", concurrency=2)
FIVE_AT_ONCE = GroupLimits("tenant", concurrency=5)
THREE_PER_HOUR = GroupLimits("tenant", max=3, duration_ms=HOUR_MS)
GROUP_KEYS = ("group_active", "group_delayed", "group_promoted", "group_started", "group_windows")
#: All keys of groups.
ALL_GROUP_KEYS = (*GROUP_KEYS, "group_settings", "group_own", "group_checks")


def add(queue: BullQueue, tenants: Sequence[str | None], **options: Any) -> list[str]:
    """Adds a job for each tenant; None: without that field."""
    jobs = [NewJob({"n": n} | ({"tenant": one} if one else {}), **options) for n, one in enumerate(tenants)]
    return queue.add_many(jobs).ids


def settings(group: GroupLimits | None = TWO_AT_ONCE, at_once: int | None = None) -> WorkSettings:
    return WorkSettings("slot", lock_ms=HOUR_MS, group=group, at_once=at_once)


def claim(bench: WorkBench, limit: int = 10, group: GroupLimits = TWO_AT_ONCE) -> Claim:
    """Claims as a slot does: again for as long as there is more."""
    found = bench.claim(limit, work_settings=settings(group))
    while not found.jobs and found.more:
        found = bench.claim(limit, work_settings=settings(group))
    return found


def claim_and_complete(bench: WorkBench, limit: int, group: GroupLimits) -> Claim:
    found = claim(bench, limit, group)
    bench.work(completed(found), work_settings=settings(group))
    return found


def finish(bench: WorkBench, group: GroupLimits, at_once: int | None = None, limit: int = 10) -> list[str]:
    """Claims and completes jobs until no more can start; returns their ids in the order in which they started."""
    started: list[str] = []
    found = bench.claim(limit, work_settings=settings(group, at_once))
    while found.jobs or found.more:
        started += ids_of(found)
        found = bench.work(completed(found), limit, work_settings=settings(group, at_once))
    return started


def ids_of(found: Claim) -> list[str]:
    return [job.id for job in found.jobs]


def due_times(bench: WorkBench, ids: Sequence[str]) -> list[int]:
    return [int(bench.client.zscore(bench.key("delayed"), one)) // 4096 for one in ids]


def move_back(bench: WorkBench, name: str, back: int) -> None:
    for member in bench.client.zrange(bench.key(name), 0, -1):
        bench.client.zincrby(bench.key(name), -back, member)


def end_windows(bench: WorkBench, hours: int = 2) -> None:
    """Moves the windows of all groups, and the due times of all jobs, back."""
    move_back(bench, "group_windows", hours * HOUR_MS)
    move_back(bench, "delayed", hours * HOUR_MS * 4096)
    # The members of delayed jobs end with their scores in `delayed`.
    for member in bench.client.zrange(bench.key("group_delayed"), 0, -1):
        place, _, score = member.rpartition(b"\0")
        bench.client.zrem(bench.key("group_delayed"), member)
        bench.client.zadd(bench.key("group_delayed"), {place + b"\0%d" % (int(score) - hours * HOUR_MS * 4096): 0})


def end_rests(bench: WorkBench) -> None:
    """Moves the ends of all rests, and the next checks of groups, back."""
    move_back(bench, "group_checks", 2 * HOUR_MS)
    for member in bench.client.zrange(bench.key("group_own"), 0, -1):
        own = msgpack.unpackb(member[16:])
        if "rests_until" in own:
            own["rests_until"] -= 2 * HOUR_MS
            bench.client.zrem(bench.key("group_own"), member)
            bench.client.zadd(bench.key("group_own"), {member[:16] + msgpack.packb(own): 0})


def outcomes_of(found: Claim, job_id: str) -> list[Outcomes]:
    ended = Outcomes(found.token)
    ended.complete(job_id, "1")
    return [
        ended,
        Outcomes(found.token, failed=[Failed(job_id, "no", "[]", None, 1)]),
        Outcomes(found.token, retried=[Retried(job_id, "no", "[]", HOUR_MS, False)]),
        Outcomes(found.token, delayed=[Delayed(job_id, found.now + HOUR_MS)]),
    ]
