"""The verbs of workers and services: claim and settle, extend, promote, rescue; and the values of claimed jobs.

Each call handles a chunk. `work`, `promote_due` and `rescue` store their last reply for a while (a receipt): a call
repeated after a lost reply gets that reply and changes nothing. The other calls are idempotent.

A job with unreadable `attemptsMade` or `opts` is not run: it fails with a reason that names the field. Another field
that can't be parsed counts as not given.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple, TypeVar
from uuid import uuid4

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.encode.chunks import converted, listed
from spark_bull.core.dialects.fields import CLAIMED_FIELDS, stalls_of
from spark_bull.core.model.javascript import LARGEST, whole_in
from spark_bull.core.model.job_json import damaged_field, parsed_opts
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Claim, ClaimedJob, Outcomes, RejectedOutcome
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.handle.walk import MAX_IDS
from spark_bull.core.queue.schedule.advance import advance, may_be_scheduled
from spark_bull.core.queue.work import verbs
from spark_bull.core.queue.work.verbs import WorkReply, unpack_work

log = logging.getLogger("spark_bull")

T = TypeVar("T")

#: The largest number of each kind. Counts are INT columns of DataFrames; neither Spark nor Python prints a time after
#: the year 9999.
_LARGEST: Final = {"count": 2**31 - 1, "stalls": 2**31 - 1, "number": LARGEST, "time": 253_402_300_799_999}


#: ClaimedJob._make, in two thirds of its time.
_NEW: Final = partial(tuple.__new__, ClaimedJob)


class ClaimedChunk(NamedTuple):
    """Some claimed jobs. `columns`: raw texts by hash field, a list or one value for all jobs, False for none."""

    ids: Sequence[str]
    columns: Mapping[str, Any]

    def are_there(self) -> list[bool]:
        """Which of the jobs exist. A claim has given a deferred failure to what is left of a removed one."""
        signs = [self._listed(name) for name in ("timestamp", "data", "defa") if name in self.columns]
        return [any(sign is not False for sign in of_job) for of_job in zip(*signs, strict=True)]

    def without(self, job_ids: Collection[str]) -> ClaimedChunk:
        """The jobs without these."""
        kept = [place for place, job_id in enumerate(self.ids) if job_id not in job_ids]
        columns = {
            name: [column[place] for place in kept] if isinstance(column, list) else column
            for name, column in self.columns.items()
        }
        return ClaimedChunk([self.ids[place] for place in kept], columns)

    def values(self, dialect: Dialect) -> dict[str, Any]:
        """Columns by attribute of ClaimedJob; each is a list, or one value for all jobs. Numbers are int.

        None where a job lacks a text, the default where the dialect lacks the field. `deferred_failure` of a damaged
        job says which field is wrong.
        """
        names = dialect.claim_fields
        made = {
            attribute: _converted(self.columns[names[attribute]], convert)
            if attribute in names
            else ClaimedJob._field_defaults[attribute]
            for attribute, convert in _CONVERTERS.items()
        }
        damage = self._damage(dialect)
        if damage:
            deferred = listed(made["deferred_failure"], len(self.ids))
            made["deferred_failure"] = [reason or damage.get(place) for place, reason in enumerate(deferred)]
        return made

    def jobs(self, dialect: Dialect) -> list[ClaimedJob]:
        """The jobs as objects."""
        if not self.ids or not self.columns:
            return []
        made = self.values(dialect)
        made["data"] = _filled(made["data"], "")
        made["opts"] = _filled(made["opts"], "{}")
        count = len(self.ids)
        columns = (listed(made[name], count) for name in ClaimedJob._field_defaults)
        return list(map(_NEW, zip(self.ids, *columns, strict=True)))

    def _listed(self, field: str) -> list[Any]:
        return listed(self.columns[field], len(self.ids))

    def _damage(self, dialect: Dialect) -> dict[int, str]:
        """Why jobs can't run, by place."""
        found: dict[int, str] = {}
        attempts, opts = dialect.claim_fields["attempts_made"], dialect.claim_fields["opts"]
        for field, column, what, is_sound in (
            (attempts, self.columns[attempts], "a whole number", _is_count),
            (opts, _without_ids(self.columns[opts], self.ids), "a JSON object", _is_object),
        ):
            for place in _unsound_places(column, len(self.ids), is_sound):
                found[place] = damaged_field(field, self.ids[place], what, self._listed(field)[place])
        return found


def _unsound_places(column: Any, count: int, is_sound: Callable[[str], bool]) -> list[int]:
    """Where a column holds a text that is not sound. Equal texts are checked once."""
    texts = column if isinstance(column, list) else [column]
    unsound = {text for text in set(texts) if text and not is_sound(text)}
    return [place for place, text in enumerate(listed(column, count)) if text in unsound] if unsound else []


def _without_ids(column: Any, ids: Sequence[str]) -> Any:
    """Options with an empty id in place of the job's own, so that most are equal. They are JSON if these are."""
    if not isinstance(column, list):
        return column
    pairs = zip(column, ids, strict=True)
    return [text and text.replace(f'"jobId":{encode_basestring(job_id)}', '"jobId":""') for text, job_id in pairs]


def _filled(column: Any, default: str) -> Any:
    """The column with a text in place of those that are empty or missing."""
    return [text or default for text in column] if isinstance(column, list) else column or default


def _is_count(text: str) -> bool:
    return _number(text, _LARGEST["count"]) is not None


def _is_object(text: str) -> bool:
    return parsed_opts(text) is not None


def _converted(column: Any, convert: Callable[[Any], Any] | None) -> Any:
    """The column with `convert` applied to its values; None: they are texts."""
    if convert is not None:
        return converted(column, convert)
    if isinstance(column, list):
        return [None if text is False else text for text in column]
    return None if column is False else column


def _number(text: Any, largest: int) -> int | None:
    """The whole number from 0 to `largest` at the start of a text; None for another text."""
    number = whole_in(text)
    return number if number is not None and 0 <= number <= largest else None


def _to_number(largest: int, missing: int | None) -> Callable[[Any], int | None]:
    def convert(text: Any) -> int | None:
        number = _number(text, largest) if text else None
        return missing if number is None else number

    return convert


def _to_stalls(text: Any) -> int:
    counter = _number(text, _LARGEST["stalls"]) if text else None
    return stalls_of(counter or 0)


#: By attribute of ClaimedJob; None: texts, which are converted together.
_CONVERTERS: Final[Mapping[str, Callable[[Any], Any] | None]] = {
    field.claimed: (
        _to_stalls
        if field.kind == "stalls"
        else _to_number(_LARGEST[field.kind], ClaimedJob._field_defaults[field.claimed])
        if field.kind in _LARGEST
        else None
    )
    for field in CLAIMED_FIELDS.values()
}


#: Jobs of one call; each is searched for in the list of active jobs.
RELOCK_SIZE: Final = 50
#: Size of payloads, bytes, after which a call claims no more jobs.
CLAIM_BYTES: Final = 1 << 20


def work(
    handle: QueueHandle,
    work_settings: WorkSettings,
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
    token = token or f"{work_settings.sender}:{call}"
    reply = verbs.work(
        handle,
        work_settings,
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
    advance(handle, work_settings.sender, call, jobs, answer["now"])
    return _claim_of(token, answer, jobs)


def parts_to_return(jobs: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The jobs, or their ids, that `work` is to return, at most `size` per call, the last ones first.

    Each call puts its jobs before those that wait, so that the jobs wait in their order.
    """
    for start in reversed(range(0, len(jobs), size)):
        yield jobs[start : start + size]


class PackedClaim(NamedTuple):
    """A claim without its jobs, the ids of these, and the reply with their fields."""

    claim: Claim
    ids: list[str]
    reply: bytes


def claim_packed(
    handle: QueueHandle, work_settings: WorkSettings, limit: int, *, reader: str, token: str
) -> PackedClaim:
    """Claims up to `limit` jobs into a ledger, to be unpacked by `unpack_claimed` in another process."""
    call = uuid4().hex
    reply = verbs.work(handle, work_settings, limit, call=call, token=token, most_bytes=CLAIM_BYTES, reader=reader)
    answer = unpack_work(reply)
    _warn_of_damaged(handle, answer)
    if any(map(may_be_scheduled, answer["ids"])):
        advance(handle, work_settings.sender, call, _chunk_of(answer).jobs(handle.dialect), answer["now"])
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
        lost=[RejectedOutcome(job_id, why) for job_id, why in answer["lost"] or ()],
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
    work(handle, WorkSettings(f"expired:{uuid4().hex}"), Outcomes(token, unstarted=gone), 0)
    return chunk.without(gone)
