"""The registration of a staged write: from then on, any process can finish it.

One script registers a write with few keys, for all of its queues, if it can reach them all. A larger write would block
Redis, and queues may be in different slots of a cluster or on different servers. Then portions are prepared, which no
worker sees, and which expire. One script sets the commit point, in the queue that leads. Each queue is then opened, by
this process or by any that recovers the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict

import msgpack

from spark_bull.core.dialects.terms import AT_LEAST_ONCE, DELIVERY
from spark_bull.core.errors import SparkBullError, StagedDataLost
from spark_bull.core.keys import logical_queue
from spark_bull.core.model.jobs import NOT_STARTED
from spark_bull.core.queue.dispatch.write_records import (
    CHANGES,
    KEYS_PER_CALL,
    WATERMARK_TTL_MS,
    Identity,
    QueuePlan,
    discard,
    kind_of,
    open_prepared,
)
from spark_bull.core.queue.handle.admission import intake_closed, queue_full
from spark_bull.core.queue.handle.handle import RECORD_TTL_MS
from spark_bull.core.store.round_trips import all_together, batches_together, groups_of

#: The field of the write of the first shard: the epoch of the shards that its rows were written for.
SHARDS_EPOCH: Final = "shardsEpoch"
#: Time between the first portion of a large write and its commit point, ms, after which it is given up.
VALID_MS: Final = 3_600_000


def register(write_id: str, plans: Sequence[QueuePlan], identity: Identity | None) -> bool:
    """Registers a write for all of its queues or none; False when it was written before.

    Raises StagedDataLost when staged chunks are gone, IntakeClosed for a queue that accepts no jobs, and QueueFull if
    `whenFull` is fail; then nothing is visible.
    """
    if not plans:
        return True
    entries = [_entry(write_id, number, plan, identity) for number, plan in enumerate(plans, 1)]
    sites = [plan.handle.site for plan in plans]
    if len(set(sites)) == 1 and sum(len(_touched(entry)) for entry in entries) <= KEYS_PER_CALL:
        answer = _send("register", plans, entries, identity, {"watermark_ttl_ms": WATERMARK_TTL_MS})
        return _is_registered(answer, write_id, plans)
    answer = _prepare(write_id, plans, entries, sites, identity)
    if answer[0] == b"prepared":
        answer = _confirm(write_id, plans, identity)
    if answer[0] != b"registered":
        parts = [(plan.handle, [part.stage for part in plan.parts]) for plan in plans]
        all_together(parts, lambda part: discard(part[0].connection, part[0].keys, write_id, part[1]))
    registered = _is_registered(answer, write_id, plans)
    if registered:
        open_prepared([plan.handle for plan in plans], write_id)
    return registered


def prepare_rows(write_id: str, plan: QueuePlan, first: int) -> bool:
    """Prepares a write of one queue while its rows are found: the stages of `plan` from number `first` on follow those
    of earlier calls. Returns False if the write was aborted.

    Raises StagedDataLost if earlier stages are gone.
    """
    entry = _entry(write_id, 1, plan, None)
    fields = [*entry["fields"], "leader", entry["write"], "search", 1]
    entry = {**entry, "fields": fields, "stages": entry["stages"][first:], "first": first}
    answer = _send_portion([plan], [entry], None)
    _check_found(answer, write_id)
    return answer[0] == b"prepared" or not _is_registered(answer, write_id, [plan])


def confirm_rows(write_id: str, plan: QueuePlan) -> None:
    """Registers a write that `prepare_rows` has prepared, unless it was aborted. Raises StagedDataLost."""
    answer = _confirm(write_id, [plan], None)
    _check_found(answer, write_id)
    if _is_registered(answer, write_id, [plan]):
        open_prepared([plan.handle], write_id)


def _check_found(answer: Sequence[Any], write_id: str) -> None:
    """Raises StagedDataLost if rows of a write were not found in time, or are gone."""
    if answer[0] == b"lost":
        raise StagedDataLost(
            f"expected the jobs of write {write_id} to be found within {VALID_MS // 60_000} minutes, but "
            f"{answer[1].decode()} has expired, or was evicted or flushed: no job was changed. Narrow the condition, "
            "and set maxmemory-policy noeviction"
        )


def leader_of(plans: Iterable[QueuePlan]) -> QueuePlan:
    """The queue that has the commit point of a large write; the same one when the write is repeated."""
    return min(plans, key=lambda plan: plan.handle.keys.queue)


def _send(
    script: str,
    plans: Sequence[QueuePlan],
    entries: Sequence[_Entry],
    identity: Identity | None,
    args: Mapping[str, int],
) -> Sequence[Any]:
    touched = [key for entry in entries for key in _touched(entry)]
    packed = msgpack.packb(entries, use_bin_type=False)
    version = identity.version if identity else 0
    answer: Sequence[Any] = plans[0].handle.connection.script(
        f"write/{script}", {"touched": touched}, {"plan": packed, "version": version, **args}
    )
    return answer


def _send_portion(plans: Sequence[QueuePlan], portion: Sequence[_Entry], identity: Identity | None) -> Sequence[Any]:
    return _send("prepare", plans, portion, identity, {"ttl_ms": RECORD_TTL_MS, "valid_ms": VALID_MS})


def _prepare(
    write_id: str,
    plans: Sequence[QueuePlan],
    entries: Sequence[_Entry],
    sites: Sequence[int],
    identity: Identity | None,
) -> Sequence[Any]:
    """Prepares a write in portions, the queue that leads first; portions of several sites together."""
    leader = leader_of(plans).handle.keys.write(write_id)
    entries = [{**entry, "fields": [*entry["fields"], "leader", leader]} for entry in entries]
    entries.sort(key=lambda entry: entry["write"] != leader)

    def prepare(entries: Sequence[_Entry]) -> Sequence[Any]:
        answer: Sequence[Any] = ()
        for portion in _portions(entries):
            answer = _send_portion(plans, portion, identity)
            if answer[0] != b"prepared":
                break
        return answer

    first, *others = groups_of(entries, lambda entry: sites[entry["queue"] - 1])
    answer = prepare(first)
    if answer[0] != b"prepared":
        return answer
    for batch in batches_together(others, prepare):
        for _, result in batch:
            if isinstance(result, SparkBullError):
                raise result
            if result[0] != b"prepared":
                return result
    return answer


def _confirm(write_id: str, plans: Sequence[QueuePlan], identity: Identity | None) -> Sequence[Any]:
    """Sets the commit point of a prepared write."""
    leader = leader_of(plans)
    handle = leader.handle
    keys = {
        "write": handle.keys.write(write_id),
        "manifest": handle.keys.manifest(write_id),
        "open": handle.keys["open_writes"],
        "watermark": handle.keys.watermark(identity.app_id) if identity else None,
        "shard_layout": _layout_key(leader),
    }
    version = identity.version if identity else 0
    args = {"write_id": write_id, "version": version, "watermark_ttl_ms": WATERMARK_TTL_MS}
    answer: Sequence[Any] = handle.connection.script("write/confirm", keys, args)
    return answer


def _is_registered(answer: Sequence[Any], write_id: str, plans: Sequence[QueuePlan]) -> bool:
    """Whether the write is registered, and was not written before. Raises the error of any other answer."""
    if answer[0] == b"lost":
        raise StagedDataLost(
            f"expected the staged chunks of write {write_id} in Redis, but {answer[1].decode()} "
            "expired, was evicted or flushed: nothing was written. Raise `stageTtlMs` above the "
            "duration of the job, set maxmemory-policy noeviction, and run again"
        )
    if answer[0] == b"resharded":
        leader = leader_of(plans)
        then = "its jobs are in the shards that the queue had before: start workers for these"
        if leader.fields.get(DELIVERY) != AT_LEAST_ONCE:
            then = "nothing was written; run the write again"
        raise SparkBullError(
            f"expected the shards of queue {logical_queue(leader.handle.keys.queue)} to stay as they were when this "
            f"write began, but their number has changed: {then}"
        )
    if answer[0] == b"closed":
        raise intake_closed(plans[answer[1] - 1].handle.keys.queue)
    if answer[0] == b"full":
        plan = plans[answer[1] - 1]
        max_length, jobs = int(plan.fields["maxLength"]), sum(part.rows for part in plan.parts)
        raise queue_full(plan.handle.keys.queue, answer[2], max_length, jobs, "nothing of this write was added")
    return bool(answer[0] == b"registered")


class _Stage(TypedDict):
    """A stage key, and the number of its chunks."""

    key: str
    chunks: int


class _Limit(TypedDict):
    """The maximum length of a queue for a write of `jobs`, and the keys that its length is read from."""

    max_length: int
    jobs: int
    replaces: bool
    lists: list[str]
    zsets: list[str]
    writes: str


class _Entry(TypedDict):
    """One queue of a write, or a part of its stage keys, as the scripts expect it.

    queue: its number, from 1. fields: names and values of the write's hash. limit: None if the queue has no maximum
    length, or is filled step by step. first: the number of stage keys of earlier portions. shard_layout: key of the
    layout of shards, in their first queue, with the epoch that the rows were written for; else ''.
    """

    id: str
    queue: int
    write: str
    manifest: str
    open: str
    watermark: str
    stages: list[_Stage]
    fields: list[str | int]
    intake_closed: str
    limit: _Limit | None
    first: int
    shard_layout: str
    epoch: str


def _touched(entry: _Entry) -> list[str]:
    """The keys of an entry."""
    own = [entry["write"], entry["manifest"], entry["open"]]
    own += filter(None, (entry["watermark"], entry["intake_closed"], entry["shard_layout"]))
    limit = entry["limit"]
    lengths = limit["lists"] + limit["zsets"] if limit else []
    return [*own, *lengths, *(stage["key"] for stage in entry["stages"])]


def _portions(entries: Sequence[_Entry]) -> Iterator[list[_Entry]]:
    """Cuts entries into portions of at most KEYS_PER_CALL keys."""
    portion: list[_Entry] = []
    room = KEYS_PER_CALL
    for entry in entries:
        own = len(_touched(entry)) - len(entry["stages"])
        first = 0
        while first == 0 or first < len(entry["stages"]):
            if portion and room <= own:
                yield portion
                portion, room = [], KEYS_PER_CALL
            stages = entry["stages"][first : first + room - own]
            portion.append({**entry, "stages": stages, "first": first})
            room -= own + len(stages)
            first += max(1, len(stages))
    if portion:
        yield portion


def _limit(plan: QueuePlan, jobs: int) -> _Limit | None:
    """The maximum length for a write that is registered only if all of its jobs fit."""
    if plan.fields.get("whenFull") != "fail":
        return None
    keys, states = plan.handle.keys, plan.handle.dialect.states
    waiting = [state for name, state in states.items() if name in NOT_STARTED]
    return {
        "max_length": int(plan.fields["maxLength"]),
        "jobs": jobs,
        "replaces": bool(plan.fields.get("replace")),
        "lists": [keys[state.key] for state in waiting if state.kind == "list"],
        "zsets": [keys[state.key] for state in waiting if state.kind == "zset"],
        "writes": keys.writes,
    }


def _entry(write_id: str, number: int, plan: QueuePlan, identity: Identity | None) -> _Entry:
    keys = plan.handle.keys
    fields: dict[str, str | int] = {
        "delivery": "exactly-once",
        "dialect": plan.handle.dialect.name,
        "jobs": sum(part.rows for part in plan.parts),
        **plan.fields,
    }
    if identity:
        fields |= {"appId": identity.app_id, "version": identity.version}
    adds = kind_of(fields) is not CHANGES
    return {
        "id": write_id,
        "queue": number,
        "write": keys.write(write_id),
        "manifest": keys.manifest(write_id),
        "open": keys["open_writes"],
        "watermark": keys.watermark(identity.app_id) if identity else "",
        "stages": [{"key": part.stage, "chunks": part.chunks} for part in plan.parts],
        "fields": [item for field in fields.items() for item in field],
        # The jobs of other writes are in the queue already, and changes add none.
        "intake_closed": keys["intake_closed"] if fields["delivery"] == "exactly-once" and adds else "",
        "limit": _limit(plan, int(fields["jobs"])),
        "first": 0,
        "shard_layout": _layout_key(plan) or "",
        "epoch": str(fields.get(SHARDS_EPOCH, "")),
    }


def _layout_key(plan: QueuePlan) -> str | None:
    """The key of the layout of shards, if this is their first queue, which leads."""
    return plan.handle.keys["shard_layout"] if SHARDS_EPOCH in plan.fields else None
