"""The verbs of workers and services: claim and settle, extend, promote, rescue.

Each call handles a chunk. `work`, `promote_due` and `rescue` store their last reply for a while (a receipt): a call
repeated after a lost reply gets that reply and changes nothing. The other calls are idempotent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import uuid4

from spark_bull.core.dialects.encode.chunks import listed
from spark_bull.core.model.limits import ClaimSettings
from spark_bull.core.model.outcomes import Claim, ClaimedJob, Lost, Outcomes
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.handle.walk import MAX_IDS
from spark_bull.core.queue.schedule.advance import advance, may_be_scheduled
from spark_bull.core.queue.work import verbs
from spark_bull.core.queue.work.claimed_fields import ClaimedChunk
from spark_bull.core.queue.work.verbs import WorkReply, unpack_work

log = logging.getLogger("spark_bull")

#: Jobs of one call; each is searched for in the list of active jobs.
RELOCK_SIZE: Final = 50
#: Size of payloads, bytes, after which a call claims no more jobs.
CLAIM_BYTES: Final = 1 << 20


def work(
    handle: QueueHandle,
    claim_settings: ClaimSettings,
    outcomes: Outcomes | None,
    limit: int,
    *,
    most_bytes: int = CLAIM_BYTES,
    held: bytes | str = b"",
    reader: str = "",
    with_jobs: bool = True,
    call: str = "",
    token: str = "",
) -> Claim:
    """Settles a chunk and claims the next one, in one round trip.

    limit: maximum number of jobs to claim, 0: settle only. most_bytes: payload after which no more jobs are claimed.
    held: id of a job that a blocking command has moved to `active`; it is claimed first. reader: name of the ledger to
    which the claim is added. with_jobs: False returns the number of jobs only. call: the unique name of a call that is
    repeated because its reply was lost. token: token of the locks; default: a new one.
    """
    call = call or uuid4().hex
    token = token or f"{claim_settings.sender}:{call}"
    reply = verbs.work(
        handle,
        claim_settings,
        limit,
        call=call,
        token=token,
        outcomes=outcomes,
        most_bytes=most_bytes,
        held=held,
        reader=reader,
        with_jobs=with_jobs,
    )
    answer = unpack_work(reply)
    _warn_of_damaged(handle, answer)
    jobs = _chunk_of(answer).jobs(handle.dialect)
    advance(handle, claim_settings.sender, call, jobs, answer["now"])
    return _claim_of(token, answer, jobs)


def parts_to_return(ids: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The ids of jobs that `work` is to return, at most `size` per call, the last ones first.

    Each call puts its jobs before those that wait, so that the jobs wait in their order.
    """
    for start in reversed(range(0, len(ids), size)):
        yield ids[start : start + size]


class PackedClaim(NamedTuple):
    """A claim without its jobs, the ids of these, and the reply with their fields."""

    claim: Claim
    ids: list[str]
    reply: bytes


def claim_packed(
    handle: QueueHandle, claim_settings: ClaimSettings, limit: int, *, reader: str, token: str
) -> PackedClaim:
    """Claims up to `limit` jobs into a ledger, to be unpacked by `unpack_claimed` in another process."""
    call = uuid4().hex
    reply = verbs.work(handle, claim_settings, limit, call=call, token=token, most_bytes=CLAIM_BYTES, reader=reader)
    answer = unpack_work(reply)
    _warn_of_damaged(handle, answer)
    if any(map(may_be_scheduled, answer["ids"])):
        advance(handle, claim_settings.sender, call, _chunk_of(answer).jobs(handle.dialect), answer["now"])
    return PackedClaim(_claim_of(token, answer, []), answer["ids"], reply)


def unpack_claimed(reply: bytes) -> ClaimedChunk:
    """The jobs of a reply of `claim_packed`."""
    return _chunk_of(unpack_work(reply))


def _chunk_of(answer: WorkReply) -> ClaimedChunk:
    return ClaimedChunk(answer["ids"], answer["columns"] or {})


def _claim_of(token: str, answer: WorkReply, jobs: list[ClaimedJob]) -> Claim:
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
        counted=answer["counted"] or {},
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
    return ClaimedChunk(job_ids, verbs.claimed(handle, job_ids, list(handle.dialect.claim_fields.values())))


def _warn_of_damaged(handle: QueueHandle, answer: WorkReply) -> None:
    queue, gone = handle.keys.queue, []
    for job_id, kind in answer["damaged"]:
        if kind == "none":
            gone.append(job_id)
        elif kind == "remnant":
            log.warning(
                "queue %s: job %s fails, as only a remnant of it is left: it was removed while it ran", queue, job_id
            )
        else:
            found = f"expected {handle.keys.job(job_id)} to be a hash, found a {kind}"
            log.warning(
                "queue %s: job %s can't run and was removed from its state: %s; the ids of such jobs are in %s",
                queue,
                job_id,
                "expected an id that is UTF-8" if kind == "id" else found,
                handle.keys["damaged"],
            )
    if gone:
        log.warning(
            "queue %s: %d waiting jobs are lost, as their hashes are gone, such as the hash of job %s. Redis has "
            "evicted them (is maxmemory-policy noeviction?), or somebody has deleted them",
            queue,
            len(gone),
            gone[0],
        )


def limited_groups_ms(handle: QueueHandle) -> int:
    """The time until the rate limit of a group may let delayed jobs start, ms; 0: no job is delayed by one."""
    windows = ("ZRANGE", handle.keys["group_windows"], 0, 0, "WITHSCORES")
    first, delayed = handle.connection.pipeline([windows, ("ZCARD", handle.keys["group_delayed"])])
    if not first or not delayed:
        return 0
    ((_, window_end),) = first
    return max(1, int(window_end) - handle.connection.now_ms())


def extend(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> list[str]:
    """Extends locks that hold `token` to `lock_ms` from now; returns the ids of jobs whose lock no longer holds it."""
    lost: list[str] = []
    for start in range(0, len(job_ids), CHUNK_SIZE):
        lost += verbs.extend(handle, token, job_ids[start : start + CHUNK_SIZE], lock_ms)
    return lost


def relock(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> None:
    """Locks jobs for `token` that are active without a lock, as theirs has expired, or with one that ends sooner."""
    for start in range(0, len(job_ids), RELOCK_SIZE):
        verbs.relock(handle, token, job_ids[start : start + RELOCK_SIZE], lock_ms)


def take_up(handle: QueueHandle, token: str, job_ids: Sequence[str], lock_ms: int) -> None:
    """Completes the claim of jobs that another process has claimed, as it may have stopped in between.

    Locks them again, and advances their job schedulers.
    """
    relock(handle, token, job_ids, lock_ms)
    scheduled = [job_id for job_id in job_ids if may_be_scheduled(job_id)]
    if scheduled:
        now = handle.connection.now_ms()
        advance(handle, token, uuid4().hex, read_claimed(handle, scheduled), now, again=True)


@dataclass(frozen=True)
class Rescued:
    """Ids of stalled jobs: moved back to `wait`, or failed because they stalled too often."""

    stalled: list[str]
    failed: list[str]


def rescue(handle: QueueHandle, *, max_stalled: int = 1, check_ms: int = 30_000, limit: int = CHUNK_SIZE) -> Rescued:
    """Moves stalled jobs back, unless a check was made within `check_ms`. See the dialects' rescue.lua."""
    stalled: list[str] = []
    failed: list[str] = []
    position = b""
    while True:
        reply = verbs.rescue(handle, position, max_stalled=max_stalled, check_ms=check_ms, limit=limit)
        position = reply.position
        stalled += reply.stalled
        failed += reply.failed
        if not position:
            return Rescued(stalled, failed)


#: Bull moves a job to `active` and locks it in two steps.
_BETWEEN_STEPS_S: Final = 0.5


def unlocked(handle: QueueHandle) -> list[str]:
    """The ids of the active jobs that had no lock at two looks, one after the other."""
    found = _active_without_lock(handle)
    if not found:
        return []
    time.sleep(_BETWEEN_STEPS_S)
    again = set(_active_without_lock(handle))
    return [job_id for job_id in found if job_id in again]


def _active_without_lock(handle: QueueHandle) -> list[str]:
    found: list[str] = []
    position, length = 0, MAX_IDS
    while length == MAX_IDS:
        args = {"base": handle.keys.base, "position": position, "window": MAX_IDS}
        length, *ids = handle.connection.script("read/unlocked", {"active": handle.keys["active"]}, args)
        found += (job_id.decode("utf-8", "replace") for job_id in ids)
        position += length
    return found


def start_chunk(handle: QueueHandle, token: str, chunk: ClaimedChunk) -> ClaimedChunk:
    """Returns the jobs of a claim that start now, or have started before. Repeated calls return the same ones.

    Sends nothing for jobs that can't expire. token: of their locks. Raises ConnectionLost.
    """
    times = listed(chunk.columns[handle.dialect.claim_fields["expire_at"]], len(chunk.ids))
    may_expire = [job_id for job_id, time in zip(chunk.ids, times, strict=True) if time]
    gone = verbs.start(handle, token, may_expire) if may_expire else []
    if not gone:
        return chunk
    work(handle, ClaimSettings(f"expired:{uuid4().hex}"), Outcomes(token, unstarted=gone), 0)
    return chunk.without(gone)
