"""How many slots a backlog needs, and when a worker starts or ends some, by what it has measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil
from statistics import fmean
from typing import Final, NamedTuple

#: More slots are started when the backlog needs more than this multiple of their number, and some are ended when less
#: than the second multiple was enough at each of the last LOOKS looks. No need is both.
GROW_ABOVE: Final = 1.1
SHRINK_BELOW: Final = 0.8
LOOKS: Final = 15
#: The part of the slots that must be busy before more are started: jobs that wait beside free slots wait for another
#: reason, such as a limit of the queue.
_FULL: Final = 0.9
#: Slots that were busy at least if attempts have ended since the last look, although no slot is busy now.
_SOME: Final = 0.1
#: From this number of attempts on, older ones count for less: their weight is multiplied by this at each look.
_ENOUGH: Final = 20
_KEEP: Final = 0.9


class SlotRange(NamedTuple):
    """The smallest and the largest number of slots of a worker."""

    least: int
    most: int


class Look(NamedTuple):
    """What a worker does at a moment.

    at_s: the time, s. waiting: jobs that could start. busy: slots that process jobs. running: slots that have started.
    ended: attempts that have ended so far.
    """

    at_s: float
    waiting: int
    busy: float
    running: int
    ended: int


class Need(NamedTuple):
    """Slots that are busy, and slots with which the waiting jobs start in time."""

    busy: float
    for_backlog: float


def slots_for(waiting: int, per_s: float | None, target_wait_s: float) -> float:
    """How many slots start `waiting` jobs within `target_wait_s`.

    per_s: jobs that a busy slot ends per second; None: unknown, then one slot, which shows it.
    """
    if not waiting:
        return 0.0
    return 1.0 if per_s is None else waiting / (per_s * target_wait_s)


def wanted_slots(recent: Sequence[Need], current: int, limits: SlotRange) -> int:
    """How many slots a worker should have.

    The number grows at once, at most to the double. It shrinks when fewer were enough for LOOKS looks, to what these
    needed: so it does not follow each change of the load. Busy slots never make it grow, but keep it from shrinking.

    recent: the last needs, the newest last; at least one. current: the number of slots, without those that are to end.
    """
    if current < limits.least:
        return limits.least
    now = recent[-1].for_backlog
    if now > GROW_ABOVE * current:
        return max(current, min(ceil(now), 2 * current or 1, limits.most))
    if len(recent) >= LOOKS:
        last = recent[-LOOKS:]
        enough = max(fmean(one.busy for one in last), *(one.for_backlog for one in last))
        if enough < SHRINK_BELOW * current:
            return max(limits.least, min(ceil(enough), current))
    return current


class SlotRate:
    """Measures how many attempts a busy slot ends per second."""

    def __init__(self) -> None:
        self._ended = self._busy_s = 0.0

    def add(self, ended: int, busy_s: float) -> None:
        """Adds the attempts that slots have ended, and the time for which they were busy, in total, s."""
        keep = _KEEP if self._ended > _ENOUGH else 1.0
        self._ended = keep * self._ended + ended
        self._busy_s = keep * self._busy_s + busy_s

    @property
    def per_s(self) -> float | None:
        """Attempts per second; None: no slot was busy yet. One more counts as ended: those that run end at any time."""
        return (self._ended + 1) / self._busy_s if self._busy_s else None


class SlotScale:
    """Turns looks at a worker into the number of slots that it should have."""

    def __init__(self, target_wait_s: float) -> None:
        self._target_wait_s = target_wait_s
        self._rate = SlotRate()
        self._last: Look | None = None
        self._recent: deque[Need] = deque(maxlen=LOOKS)

    def wanted(self, look: Look, current: int, limits: SlotRange) -> int:
        """The number of slots after another look; see `wanted_slots`."""
        busy = look.busy
        if self._last is not None:
            ended = max(0, look.ended - self._last.ended)
            busy = max(busy, _SOME if ended else 0.0)
            self._rate.add(ended, (busy + self._last.busy) / 2 * (look.at_s - self._last.at_s))
        self._last = look
        for_backlog = slots_for(look.waiting, self._rate.per_s, self._target_wait_s)
        is_full = busy >= _FULL * look.running
        self._recent.append(Need(busy, for_backlog if is_full else min(1.0, for_backlog)))
        return wanted_slots(list(self._recent), current, limits)
