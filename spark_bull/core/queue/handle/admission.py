"""The maximum length of a queue, and what a writer does when the queue is full."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import IntakeClosed, QueueFull
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.table import Adding
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.scripts import Command

log = logging.getLogger("spark_bull")

#: Pauses between two looks at a full queue, s.
_MIN_PAUSE_S: Final = 0.02
_MAX_PAUSE_S: Final = 1.0
#: Interval of the lines in the log about a writer that waits.
_LOG_S: Final = 10.0


class LengthLimit(NamedTuple):
    """The maximum length of a queue for one writer. when_full: fail, wait or drop."""

    max_length: int
    when_full: str

    @property
    def fields(self) -> dict[str, str | int]:
        """The fields of a write's hash."""
        return {"maxLength": self.max_length, "whenFull": self.when_full}


def length_limit_of(options: Adding) -> LengthLimit | None:
    """The limit that a writer's options set; None: none."""
    if options.max_length is None:
        return None
    return LengthLimit(options.max_length, options.when_full)


class RoomPauses:
    """The pauses between looks at a full queue: each is twice as long as the one before, up to a maximum."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Jobs were added: the next pause is a short one."""
        self._pause_s = _MIN_PAUSE_S

    def next_s(self) -> float:
        """The next pause, s."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _MAX_PAUSE_S)
        return pause_s


class RoomWait:
    """The wait of a writer while its queue is full, with a line in the log from time to time."""

    def __init__(self, queue: str, limit: LengthLimit) -> None:
        self._queue, self._limit = queue, limit
        self._log_at = monotonic_s() + _MAX_PAUSE_S
        self._pauses = RoomPauses()

    def reset(self) -> None:
        """Jobs were added: the next pause is a short one."""
        self._pauses.reset()

    def pause(self, length: int, done: int, total: int) -> None:
        """Pauses before the next look. done, total: jobs that the writer has processed, and has to process."""
        now = monotonic_s()
        if now >= self._log_at:
            self._log_at = now + _LOG_S
            log.warning(
                "a write waits for room: queue %s has %d jobs of at most %d; %d of %d jobs of the write are processed",
                self._queue,
                length,
                self._limit.max_length,
                done,
                total,
            )
        time.sleep(self._pauses.next_s())


def queue_full(queue: str, length: int, max_length: int, jobs: int, added: str) -> QueueFull:
    """Creates the error of a writer that finds no room. jobs: how many did not fit; added: what else was added."""
    return QueueFull(
        f"expected room for {jobs:,} jobs in queue {queue}, which has {length:,} of at most {max_length:,} "
        f"(`maxLength`): {added}. Write again when workers have processed some, raise `maxLength`, or set `whenFull` "
        "to wait or drop",
        queue=queue,
        length=length,
        max_length=max_length,
    )


def intake_closed(queue: str) -> IntakeClosed:
    """Creates the error of a writer whose queue accepts no jobs."""
    return IntakeClosed(
        f"queue {queue} accepts no jobs until `BullQueue.open_intake()` or `spark-bull open-intake {queue}` opens it: "
        "write again then",
        queue=queue,
    )


def is_intake_open(handle: QueueHandle) -> bool:
    return not handle.connection.call(*intake_check(handle.keys))


def intake_check(keys: QueueKeys) -> Command:
    """The command that returns more than 0 if the intake is closed."""
    return ("EXISTS", keys["intake_closed"])


def check_intake(handle: QueueHandle) -> None:
    """Raises IntakeClosed for a queue that accepts no jobs."""
    if not is_intake_open(handle):
        raise intake_closed(handle.keys.queue)


class Refusal(NamedTuple):
    """Nothing was added: the queue accepts no jobs (`closed`), or is `full`. length: of a full queue."""

    reason: str
    length: int = 0


def refusal_of(reply: Sequence[Any]) -> Refusal | None:
    """The refusal that a reply is, if it is one."""
    return Refusal(reply[0].decode(), *reply[1:]) if isinstance(reply[0], bytes) else None
