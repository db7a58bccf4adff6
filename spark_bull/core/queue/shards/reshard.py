"""Changes the number of shards of a logical queue while it is in use.

The order of jobs with one key is kept: the jobs of the present shards have ended before any goes to the next ones. So a
change that has begun waits until the present shards have no unfinished jobs, and so do new writes. Any process that
waits can finish the change. A write that was planned before is added to the present shards, or, after the change,
refused.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import sleep
from typing import Final

import msgpack

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.keys import QueueKeys, shard
from spark_bull.core.model.jobs import ENDED
from spark_bull.core.options.parts import Sharded
from spark_bull.core.queue.dispatch.roll_forward import advance_all
from spark_bull.core.queue.handle.handle import QueueHandle, opening
from spark_bull.core.queue.jobs.read import count_commands
from spark_bull.core.queue.shards.layout import ShardLayout, declared_layout, layout_of, of_dialect, read_layout
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.round_trips import run_all

log = logging.getLogger("spark_bull")

#: Interval between two looks at the shards, s.
LOOK_S: Final = 0.5
#: Interval between two warnings of a write that waits, s.
WARN_S: Final = 30.0


@dataclass(frozen=True)
class Draining:
    """What the present shards still have. jobs: unfinished jobs by state. writes: unfinished writes."""

    jobs: Mapping[str, int]
    writes: int

    def __str__(self) -> str:
        parts = [f"{number:,} {state}" for state, number in self.jobs.items() if number]
        return ", ".join([*parts, *([f"unfinished writes: {self.writes}"] if self.writes else [])]) or "nothing"


def reshard(options: Sharded, queue: str, shards: int, progress: Callable[[Draining], None]) -> ShardLayout:
    """Changes the number of shards, and waits until that is done; calls progress(what the shards still have).

    With the present number of shards, it gives up a change that has begun. Raises OptionError if the queue has no
    shards, SparkBullError if it is being changed to another number.
    """
    connection = Connection(options.redis)
    key = QueueKeys(shard(queue, 0), options.prefix)["shard_layout"]
    layout = layout_of(connection.script("shards/begin", {"shard_layout": key}, {"next": shards}), queue)
    if layout is None:
        raise OptionError(
            f"expected queue {queue} to have shards, found none: a write with the option `shards` creates them"
        )
    if layout.next not in (None, shards):
        raise SparkBullError(
            f"expected no other change of the shards of queue {queue}, but their number is being changed from "
            f"{layout.count} to {layout.next}: wait, or give that up with --shards {layout.count}"
        )
    now = _settle(options, layout, progress)
    if now.count != shards:
        raise SparkBullError(
            f"expected queue {queue} to get {shards} shards, but the change was given up meanwhile: it has {now.count}"
        )
    return now


def settled_layout(options: Sharded, queue: str) -> tuple[ShardLayout, QueueHandle]:
    """The layout of a queue for a write, and shard 0; waits until a change of its shards is done."""
    layout, handle = declared_layout(options, queue)
    if layout.next is None:
        return layout, handle
    warned_at = float("-inf")

    def warn(left: Draining) -> None:
        nonlocal warned_at
        if monotonic_s() - warned_at >= WARN_S:
            warned_at = monotonic_s()
            log.warning(
                "queue %s gets %d shards instead of %d: this write waits until the present ones have no unfinished "
                "jobs; they have %s. `spark-bull reshard %s --shards %d` gives the change up",
                queue,
                layout.next,
                layout.count,
                left,
                queue,
                layout.count,
            )

    _settle(options, layout, warn)
    return declared_layout(options, queue)


def _settle(options: Sharded, layout: ShardLayout, progress: Callable[[Draining], None]) -> ShardLayout:
    """Waits until no change of the shards is under way, and finishes it when the present ones are drained."""
    connection, keys = Connection(options.redis), QueueKeys(shard(layout.queue, 0), options.prefix)
    now: ShardLayout | None = layout
    while now is not None and now.next is not None:
        left = _left(of_dialect(options, now), now)
        progress(left)
        if left.writes or any(left.jobs.values()):
            sleep(LOOK_S)
        else:
            names = {"shard_layout": keys["shard_layout"], "open_writes": keys["open_writes"]}
            connection.script("shards/switch", names, {"writes": now.writes, "epoch": now.epoch})
        now = read_layout(connection, options.prefix, layout.queue)
    if now is None:
        raise SparkBullError(f"expected queue {layout.queue} to have shards, but their number is gone from Redis")
    return now


def _left(options: Sharded, layout: ShardLayout) -> Draining:
    """What the present shards have; unfinished writes are advanced."""
    handles = run_all(Connection(options.redis), [opening(options, name) for name in layout.names])
    jobs: Counter[str] = Counter()
    writes = 0
    for handle in handles:
        advance_all(handle)
        # By one script, as a job that changes its state between two commands would be in neither.
        counted = {state: command for state, command in count_commands(handle).items() if state not in ENDED}
        states = msgpack.packb([*counted.values()], use_bin_type=False)
        keys = {"open_writes": handle.keys["open_writes"], "touched": [key for _, key in counted.values()]}
        open_ones, *numbers = handle.connection.script("shards/unfinished", keys, {"states": states})
        writes += open_ones
        jobs.update(dict(zip(counted, numbers, strict=True)))
    return Draining(jobs, writes)
