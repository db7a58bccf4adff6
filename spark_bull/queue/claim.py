"""The verbs of workers and services: claim and settle, extend, promote, rescue.

Each call handles a chunk. `work`, `promote_due` and `rescue` store their last reply for a while (a receipt): a call
repeated after a lost reply gets that reply and changes nothing. The other calls are idempotent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypedDict
from uuid import uuid4

import msgpack

from spark_bull.group_limits import GroupLimits
from spark_bull.outcomes import Claim, ClaimedJob, Lost, Outcomes
from spark_bull.queue.claimed_fields import ClaimedChunk
from spark_bull.queue.handle import CHUNK_SIZE, RECEIPT_TTL_MS, QueueHandle
from spark_bull.queue.schedules import advance, may_be_scheduled

log = logging.getLogger("spark_bull")

#: Jobs of one call; each is searched for in the list of active jobs.
RELOCK_SIZE: Final = 50
#: Size of payloads, bytes, after which a call claims no further job.
CLAIM_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class ClaimSettings:
    """Settings of a slot's claims. `sender` names its receipt.

    lock_ms: lifetime of locks without `extend`. worker: name that BullMQ shows as processedBy, or empty. limiter: at
    most `max` jobs of the queue start per `duration` ms, unless the queue's meta has other values. max_metrics: minutes
    of metrics to keep, 0: none are written. control: key that says "stop" or "pause". at_once: how many
    claimed jobs start at once; while the queue or its groups have a limit, no more are claimed. None: all. group: the
    limits of each group of jobs.
    """

    sender: str
    lock_ms: int = 30_000
    worker: str = ""
    limiter: tuple[int, int] | None = None
    max_metrics: int = 0
    control: str = ""
    at_once: int | None = None
    group: GroupLimits | None = None


def default_worker(worker_id: str) -> str:
    """The name that BullMQ shows as processedBy when the user gave none."""
    return f"spark-{worker_id}"


def work(
    handle: QueueHandle,
    claim_settings: ClaimSettings,
    outcomes: Outcomes | None,
    limit: int,
    *,
    most_bytes: int = CLAIM_BYTES,
    held: str = "",
    ledger: str = "",
    with_jobs: bool = True,
    call: str = "",
    token: str = "",
) -> Claim:
    """Settles a chunk and claims the next one, in one round trip.

    limit: maximum number of jobs to claim, 0: settle only. most_bytes: payload after which no further job is claimed.
    held: id of a job that a blocking command has moved to `active`; it is claimed first. ledger: key of a LIST to which
    the ids of claimed jobs are added. with_jobs: False returns their number only. call: the unique name of a call that
    is repeated because its reply was lost. token: token of the locks; default: a new one.
    """
    call = call or uuid4().hex
    token = token or f"{claim_settings.sender}:{call}"
    reply = _work(
        handle,
        claim_settings,
        limit,
        call=call,
        token=token,
        outcomes=outcomes,
        most_bytes=most_bytes,
        held=held,
        ledger=ledger,
        with_jobs=with_jobs,
    )
    answer = _unpacked(reply)
    _warn_of_damaged(handle, answer)
    jobs = _chunk_of(answer).jobs(handle.dialect)
    advance(handle, claim_settings.sender, call, jobs, answer["now"])
    return _claim_of(token, answer, jobs)


def claim_packed(
    handle: QueueHandle, claim_settings: ClaimSettings, limit: int, *, ledger: str, token: str
) -> tuple[Claim, bytes]:
    """Claims up to `limit` jobs into a ledger; returns their fields packed, for `unpack_claimed` in another process."""
    call = uuid4().hex
    reply = _work(handle, claim_settings, limit, call=call, token=token, ledger=ledger)
    answer = _unpacked(reply)
    _warn_of_damaged(handle, answer)
    if any(map(may_be_scheduled, answer["ids"])):
        advance(handle, claim_settings.sender, call, _chunk_of(answer).jobs(handle.dialect), answer["now"])
    return _claim_of(token, answer, []), reply


def unpack_claimed(reply: bytes) -> ClaimedChunk:
    """The jobs of a reply of `claim_packed`."""
    return _chunk_of(_unpacked(reply))


def _work(
    handle: QueueHandle,
    claim_settings: ClaimSettings,
    limit: int,
    *,
    call: str,
    token: str,
    outcomes: Outcomes | None = None,
    most_bytes: int = CLAIM_BYTES,
    held: str = "",
    ledger: str = "",
    with_jobs: bool = True,
) -> bytes:
    args = {
        "call": call,
        "ttl_ms": RECEIPT_TTL_MS,
        "lock_token": token,
        "lock_ms": claim_settings.lock_ms,
        "worker": claim_settings.worker,
        "limit": limit,
        "most_bytes": most_bytes,
        "held": held,
        "limiter_max": claim_settings.limiter[0] if claim_settings.limiter else "",
        "limiter_ms": claim_settings.limiter[1] if claim_settings.limiter else "",
        "at_once": "" if claim_settings.at_once is None else claim_settings.at_once,
        "group": _packed(claim_settings.group) if claim_settings.group else "",
        "max_metrics": claim_settings.max_metrics,
        "want_jobs": int(with_jobs),
        "outcomes": msgpack.packb(outcomes.packable(), use_bin_type=False) if outcomes else "",
    }
    keys = {
        "receipt": handle.keys.receipt(claim_settings.sender),
        "control": claim_settings.control or None,
        "ledger": ledger or None,
    }
    reply: bytes = handle.run("work", args, **keys)
    return reply


class _Answer(TypedDict):
    """The reply of the script `work`. Lua returns false for nothing; pairs are (job id, reason or type of its key)."""

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


@lru_cache(maxsize=128)
def _packed(limits: GroupLimits) -> bytes:
    """Packs limits as the scripts unpack them."""
    packed: bytes = msgpack.packb(limits.given | {"path": limits.by.split(".")})
    return packed


def _unpacked(reply: bytes) -> _Answer:
    answer: _Answer = msgpack.unpackb(reply, raw=False, strict_map_key=False, unicode_errors="replace")
    return answer


def _chunk_of(answer: _Answer) -> ClaimedChunk:
    return ClaimedChunk(answer["ids"], answer["columns"] or {})


def _claim_of(token: str, answer: _Answer, jobs: list[ClaimedJob]) -> Claim:
    return Claim(
        token=token,
        jobs=jobs,
        lost=[Lost(job_id, why) for job_id, why in answer["lost"] or ()],
        limited_ms=answer["limited_ms"],
        next_due=int(answer["next_due"]) if answer["next_due"] else None,
        more=answer["more"],
        stop=answer["stop"],
        paused=answer["paused"],
        now=answer["now"],
        claimed=len(answer["ids"]),
    )


def read_claimed(handle: QueueHandle, job_ids: Sequence[str]) -> list[ClaimedJob]:
    """Jobs by their ids, as a claim returns them; those that are gone are left out."""
    jobs: list[ClaimedJob] = []
    for start in range(0, len(job_ids), CHUNK_SIZE):
        chunk = read_chunk(handle, job_ids[start : start + CHUNK_SIZE])
        jobs += [job for job, is_there in zip(chunk.jobs(handle.dialect), chunk.are_there(), strict=True) if is_there]
    return jobs


def read_chunk(handle: QueueHandle, job_ids: Sequence[str]) -> ClaimedChunk:
    """Up to CHUNK_SIZE jobs by their ids; see `are_there` for those that are gone."""
    ids = msgpack.packb(list(job_ids), use_bin_type=False)
    reply = handle.run("claimed", {"ids": ids, "fields": handle.dialect.claim_fields.values()})
    return ClaimedChunk(job_ids, msgpack.unpackb(reply, raw=False, unicode_errors="replace"))


def _warn_of_damaged(handle: QueueHandle, answer: _Answer) -> None:
    for job_id, kind in answer["damaged"]:
        log.warning(
            "queue %s: job %s can't run and was removed from its state: expected %s to be a hash, found a %s; "
            "the ids of such jobs are in %s",
            handle.keys.queue,
            job_id,
            handle.keys.job(job_id),
            kind,
            handle.keys["damaged"],
        )


def extend(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> list[str]:
    """Extends locks that hold `token` to `lock_ms` from now; returns the ids of jobs whose lock no longer holds it."""
    lost: list[bytes] = []
    for start in range(0, len(job_ids), CHUNK_SIZE):
        lost += handle.run(
            "extend", {"lock_token": token, "lock_ms": lock_ms, "ids": job_ids[start : start + CHUNK_SIZE]}
        )
    return [job_id.decode() for job_id in lost]


def relock(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> None:
    """Locks jobs for `token` that are active without a lock, as theirs has expired."""
    for start in range(0, len(job_ids), RELOCK_SIZE):
        ids = job_ids[start : start + RELOCK_SIZE]
        handle.run("relock", {"lock_token": token, "lock_ms": lock_ms, "ids": ids})


def take_up(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> None:
    """Completes the claim of jobs that another process has claimed, as it may have stopped in between.

    Locks them again, and advances their schedules.
    """
    relock(handle, token, job_ids, lock_ms)
    scheduled = [job_id for job_id in job_ids if may_be_scheduled(job_id)]
    if scheduled:
        now = handle.connection.now_ms()
        advance(handle, token, uuid4().hex, read_claimed(handle, scheduled), now, again=True)


@dataclass(frozen=True)
class Promoted:
    """How many delayed jobs were promoted, and when the next one is due (ms since 1970), None when there is none.

    `now`: time of Redis, ms since 1970. `more`: further jobs are due.
    """

    moved: int
    next_due: int | None
    now: int

    @property
    def more(self) -> bool:
        return self.next_due is not None and self.next_due <= self.now


def promote_due(handle: QueueHandle, limit: int = CHUNK_SIZE) -> Promoted:
    """Moves delayed jobs that are due to the waiting ones, `limit` at most."""
    moved, next_due, now = handle.run_once("promote_due", {"limit": limit})
    return Promoted(int(moved), int(next_due) if next_due else None, int(now))


@dataclass(frozen=True)
class Rescued:
    """Ids of stalled jobs: moved back to `wait`, or failed because they stalled too often."""

    stalled: list[str]
    failed: list[str]


def rescue(handle: QueueHandle, *, max_stalled: int = 1, check_ms: int = 30_000, limit: int = CHUNK_SIZE) -> Rescued:
    """Moves stalled jobs back, unless a check was made within `check_ms`. See the dialects' rescue.lua."""
    stalled: list[bytes] = []
    failed: list[bytes] = []
    position: bytes = b""
    call = uuid4().hex
    while True:
        args = {
            "call": call,
            "position": position,
            "limit": limit,
            "max_stalled": max_stalled,
            "check_ms": check_ms,
            "ttl_ms": RECEIPT_TTL_MS,
        }
        position, back, given_up = handle.run("rescue", args, receipt=handle.keys.receipt(f"rescue:{call}"))
        stalled += back
        failed += given_up
        if not position:
            return Rescued([i.decode() for i in stalled], [i.decode() for i in failed])
        call = uuid4().hex
