"""The verbs of workers: one function for each script, with its name; see core/queue/handle/verbs.py."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypedDict

import msgpack

from spark_bull.core.model.group_limits import GroupLimits
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.handle.claim_settings import ClaimSettings
from spark_bull.core.queue.handle.handle import RECEIPT_TTL_MS, QueueHandle
from spark_bull.core.queue.handle.other_queue import touched_keys

#: TTL of a ledger of claims after the last claim or batch of its query.
CLAIMS_TTL_MS: Final = 7 * 86_400_000


class WorkReply(TypedDict):
    """The reply of `work`, unpacked. Lua returns false for nothing; pairs are (job id, reason or type of its key).

    counted: numbers of jobs by what became of them, if the settings have a key for them.
    """

    ids: list[str]
    columns: dict[str, object] | Literal[False]
    damaged: list[tuple[str, str]]
    lost: list[tuple[str, str]] | Literal[False]
    limited_ms: int
    next_due: float | Literal[False]
    more: bool
    stop: bool
    paused: bool
    now: int
    counted: dict[str, int] | Literal[False]


def work(
    handle: QueueHandle,
    settings: ClaimSettings,
    limit: int,
    *,
    call: str,
    token: str,
    most_bytes: int,
    outcomes: Outcomes | None = None,
    held: bytes | str = b"",
    reader: str = "",
    with_jobs: bool = True,
) -> bytes:
    """Settles a chunk of claimed jobs and claims the next one; see `claim.work`. Returns a packed WorkReply.

    Outcomes with follow-ups have a script of their own, which does more.
    """
    limiter, settled = settings.limiter, outcomes.packable() if outcomes else {}
    adds = "follow_ups" in settled
    args = {
        "call": call,
        "ttl_ms": RECEIPT_TTL_MS,
        "lock_token": token,
        "lock_ms": settings.lock_ms,
        "worker": settings.worker,
        "limit": limit,
        "most_bytes": most_bytes,
        "held": held,
        "limiter_max": limiter.max if limiter else "",
        "limiter_ms": limiter.duration if limiter else "",
        "limiter_groups": int(limiter is not None and limiter.group_key is not None),
        "limiter_delays": int(limiter is not None and not limiter.bounce_back and settings.group is None),
        "at_once": "" if settings.at_once is None else settings.at_once,
        "group": _packed(settings.group) if settings.group else "",
        "max_metrics": settings.max_metrics,
        "want_jobs": int(with_jobs),
        "outcomes": msgpack.packb(settled, use_bin_type=False) if settled else "",
        "ledger_ttl_ms": CLAIMS_TTL_MS,
    }
    reply: bytes = handle.run(
        "work_and_add" if adds else "work",
        args,
        receipt=handle.keys.receipt(settings.sender),
        control=settings.control or None,
        counters=settings.counters or None,
        ledger=handle.keys.claims(reader) if reader else None,
        ledger_end=handle.keys.claims_end(reader) if reader else None,
        touched=touched_keys(handle, [chunk["queue"] for chunk in settled["follow_ups"]]) if adds else None,
    )
    return reply


@lru_cache(maxsize=128)
def _packed(limits: GroupLimits) -> bytes:
    packed: bytes = msgpack.packb(limits.given | {"path": limits.by.split(".")})
    return packed


def unpack_work(reply: bytes) -> WorkReply:
    """Unpacks a reply of `work`."""
    answer: WorkReply = msgpack.unpackb(reply, raw=False, strict_map_key=False, unicode_errors="replace")
    return answer


def claimed(handle: QueueHandle, job_ids: Sequence[str], fields: Sequence[str]) -> dict[str, object]:
    """Reads fields of claimed jobs again, as columns by name; see core/lua/lib/work_once.lua."""
    ids = msgpack.packb(list(job_ids), use_bin_type=False)
    reply = handle.run("claimed", {"ids": ids, "fields": fields})
    columns: dict[str, object] = msgpack.unpackb(reply, raw=False, unicode_errors="replace")
    return columns


def extend(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> list[str]:
    """Extends the locks that hold `token`; returns the ids of jobs whose lock no longer holds it."""
    lost: list[bytes] = handle.run("extend", {"lock_token": token, "lock_ms": lock_ms, "ids": job_ids})
    return [job_id.decode() for job_id in lost]


def start(handle: QueueHandle, token: str, job_ids: Sequence[str]) -> list[str]:
    """Starts claimed jobs that can expire; returns the ids of those that have expired, or are locked by others."""
    kept: list[bytes] = handle.run("start", {"lock_token": token, "ids": job_ids})
    return [job_id.decode() for job_id in kept]


def relock(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> int:
    """Locks those jobs that are active without a lock, or whose lock of this token is shorter; returns their number."""
    return int(handle.run("relock", {"lock_token": token, "lock_ms": lock_ms, "ids": job_ids}))


class StallReply(NamedTuple):
    """Ids of jobs that wait again, and of those that have failed."""

    returned: list[str]
    failed: list[str]


def stall(handle: QueueHandle, token: str, job_ids: Sequence[str], *, max_stalled: int, since: int) -> StallReply:
    """Returns running jobs whose locks hold `token` to the queue, as their process ends: they have stalled.

    since: when the process was already running, ms since 1970.
    """
    args = {"lock_token": token, "max_stalled": max_stalled, "since": since, "ids": job_ids}
    returned, failed = handle.run("stall", args)
    return StallReply([i.decode() for i in returned], [i.decode() for i in failed])
