"""Runs parties in every order of their calls of Redis, with a death of one of them before and after each of its calls.

A party is a function that runs in a thread of its own and waits for its turn at each call. Redis runs one call at a
time, so the orders of the calls are all that can happen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Semaphore, Thread, current_thread
from typing import Any, NamedTuple

import pytest
from redis import Redis

from spark_bull.core.errors import SparkBullError
from spark_bull.core.queue.handle import handle
from spark_bull.core.store.connection import Connection
from tests.support.traffic import Died

#: What differs between two runs of one order: times, also packed ones, ids of events, and random ids.
_VARYING = re.compile(
    r"\d{13}(-\d+)?|[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:\d+)*"
    r"|\\xcf\\x00\\x00\\x01(\\x[0-9a-f]{2}|\\.|[^\\]){5}"
)
#: All keys with their values, and whether they expire, as one text.
_DUMP = """
local function sorted(list) table.sort(list) return table.concat(list, ' ') end
local function pairs_of(list) local all = {} for i = 1, #list, 2 do all[#all + 1] = list[i] .. '=' .. list[i + 1] end
  return sorted(all) end
local read = {
  string = function(key) return redis.call('GET', key) end,
  list = function(key) return table.concat(redis.call('LRANGE', key, 0, -1), ' ') end,
  set = function(key) return sorted(redis.call('SMEMBERS', key)) end,
  hash = function(key) return pairs_of(redis.call('HGETALL', key)) end,
  zset = function(key) return table.concat(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), ' ') end,
  stream = function(key) local all = {}
    for i, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do all[i] = table.concat(entry[2], ' ') end
    return table.concat(all, ';') end,
}
local keys, lines = redis.call('KEYS', '*'), {}
table.sort(keys)
for i, key in ipairs(keys) do
  lines[i] = key .. (redis.call('TTL', key) == -1 and '! ' or ' ') .. read[redis.call('TYPE', key).ok](key)
end
return table.concat(lines, '\\n')
"""


class Party(Thread):
    """ended: whether it has no more calls. error: the one that it got. seen: its replies."""

    def __init__(self, name: str, act: Callable[[], object]) -> None:
        super().__init__(name=name, daemon=True)
        self._act = act
        self._turn, self._waits = Semaphore(0), Semaphore(0)
        self._is_killed = False
        self.ended = False
        self.error: BaseException | None = None
        self.seen = ""

    def run(self) -> None:
        try:
            self._act()
        except Died:
            pass
        except BaseException as error:
            self.error = error
        self.ended = True
        self._waits.release()

    def begin(self) -> None:
        """Runs until its first call."""
        self.start()
        self._waits.acquire()

    def step(self) -> None:
        """Makes the next call, and runs until the one after it."""
        self._turn.release()
        self._waits.acquire()

    def kill(self) -> None:
        if not self.ended:
            self._is_killed = True
            self.step()

    def call(self, send: Callable[[], Any]) -> Any:
        """Called by its thread: sends a call when it has its turn."""
        if not self._is_killed:
            self._waits.release()
            self._turn.acquire()
        if self._is_killed:
            raise Died
        reply = send()
        self.seen += f"{reply!r};"
        return reply


class Choice(NamedTuple):
    """The party that makes its next call, and whether it dies after it; without a call: before its first one."""

    party: str
    dies: bool = False
    calls: bool = True

    def __str__(self) -> str:
        return f"{self.party}{' dies' if self.dies else ''}{'' if self.calls else ' at once'}"


class Setting(NamedTuple):
    """What one order begins with. mortal: the parties that may die. check: returns what is wrong after a call."""

    parties: Mapping[str, Callable[[], object]]
    mortal: Sequence[str]
    check: Callable[[], str]


class Order(NamedTuple):
    """One order that was tried. wrong: what `check` has found, or an error that is not ours."""

    choices: list[Choice]
    wrong: str
    parties: Mapping[str, Party]


@dataclass
class _Point:
    """A point of an order. state: what Redis has, and what the parties have seen. orders: how many go on from here."""

    state: str
    choices: int
    at: int = 0
    orders: int = 0


class EveryOrder:
    """The orders of a protocol. count: how many there are.

    Where two orders lead to the same state of Redis, and each party has got the same replies, they go on in the same
    ways: one of them is tried, and both are counted. States do not differ by times and random ids.
    """

    def __init__(self, client: Redis, begin: Callable[[], Setting]) -> None:
        self.count = 0
        self._begin = begin
        self._dump = client.register_script(_DUMP)
        self._known: dict[str, int] = {}

    @property
    def states(self) -> int:
        """How many states there are between the begin and the end."""
        return len(self._known)

    def tried(self) -> Iterator[Order]:
        """Begins anew for each order; the caller examines what the order has left before it asks for the next one."""
        for act in self._begin().parties.values():
            # What a process does only once, such as looking at the version of Redis.
            with suppress(SparkBullError):
                act()
        path: list[_Point] = []
        with _turns():
            while True:
                order, orders = self._follow(path)
                if order:
                    yield order
                while path:
                    path[-1].orders += orders
                    path[-1].at += 1
                    if path[-1].at < path[-1].choices:
                        break
                    orders = path[-1].orders
                    self._known[path.pop().state] = orders
                else:
                    self.count = orders
                    return

    def _follow(self, path: list[_Point]) -> tuple[Order | None, int]:
        """Follows a path, then the first choices, which it adds to the path.

        Returns the order, None if it comes to a state that is known, and the number of orders that go on from there.
        """
        setting = self._begin()
        parties = {name: Party(name, act) for name, act in setting.parties.items()}
        for party in parties.values():
            party.begin()
        choices: list[Choice] = []
        replayed = len(path)
        wrong, orders = "", 1
        while not wrong and any(not party.ended for party in parties.values()):
            open_to = _choices(parties, setting.mortal, choices)
            if len(choices) >= replayed:
                state = self._state(parties, choices)
                if state in self._known:
                    orders = self._known[state]
                    break
                path.append(_Point(state, len(open_to)))
            choice = open_to[path[len(choices)].at]
            choices.append(choice)
            if choice.calls:
                parties[choice.party].step()
            if choice.dies:
                parties[choice.party].kill()
            if len(choices) >= replayed:
                wrong = setting.check() or _unexpected(parties)
        is_new = bool(wrong) or all(party.ended for party in parties.values())
        for party in parties.values():
            party.kill()
        return Order(choices, wrong, parties) if is_new else None, orders

    def _state(self, parties: Mapping[str, Party], choices: Sequence[Choice]) -> str:
        seen = {name: (party.seen, party.ended) for name, party in parties.items()}
        dead = [choice.party for choice in choices if choice.dies]
        return _VARYING.sub("~", f"{self._dump()!r} {seen} {dead}")


def _unexpected(parties: Mapping[str, Party]) -> str:
    errors = [(name, party.error) for name, party in parties.items() if party.error]
    return "; ".join(f"{name} raised {error!r}" for name, error in errors if not isinstance(error, SparkBullError))


def _choices(parties: Mapping[str, Party], mortal: Sequence[str], choices: Sequence[Choice]) -> list[Choice]:
    may_die = () if any(choice.dies for choice in choices) else mortal
    found = []
    for name, party in parties.items():
        if not party.ended:
            found.append(Choice(name))
            found += [Choice(name, dies=True)] if name in may_die else []
            found += [Choice(name, dies=True, calls=False)] if name in may_die and not choices else []
    return found


@contextmanager
def _turns() -> Iterator[None]:
    """Lets the threads of parties wait before each call."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("script", "call", "pipeline"):
            patch.setattr(Connection, name, _in_turn(getattr(Connection, name)))
        # How often a process notes its queues depends on the time.
        patch.setattr(handle, "note_queues", lambda *_: None)
        yield


def _in_turn(send: Callable[..., Any]) -> Callable[..., Any]:
    def acting(self: Connection, *call: Any, **how: Any) -> Any:
        party = current_thread()
        if isinstance(party, Party):
            return party.call(lambda: send(self, *call, **how))
        return send(self, *call, **how)

    return acting
