"""The processes of the soak. Each can be killed, is started again when it has died, and has its memory measured."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Protocol

from tests.proof.producers import Place
from tests.proof.soak.memory import GROWN_UP_S, JVM_GROWN_UP_S, Process, Size, processes
from tests.support.drivers import DriverProcess


class Party(Protocol):
    """A process, or a session of processes."""

    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def has_ended(self) -> bool:
        """Whether it has come to its end; starts it again if it has died."""


class SparkDriver:
    """A program of drivers.py, with its JVM and all their Python processes."""

    def __init__(self, program: str, place: Place) -> None:
        self._program, self._place = program, place
        self._log = place.notes.path.with_name(f"{program}.log")
        self._start()

    def _start(self) -> None:
        self._was_killed = False
        plan = {"url": self._place.url, "prefix": self._place.prefix, "notes": str(self._place.notes.path)}
        self._driver = DriverProcess(self._log, "tests.proof.soak.drivers", self._program, **plan)

    @property
    def pid(self) -> int:
        return self._driver.pid

    def kill(self) -> None:
        self._was_killed = True
        self._driver.kill()

    def kill_python(self, random: Random) -> None:
        """Kills one of the Python processes that Spark has started: of tasks, of their daemon, or of a source."""
        found = [one.pid for one in processes() if one.session == self.pid and one.command.startswith("python")]
        if helpers := sorted(set(found) - {self.pid}):
            with suppress(ProcessLookupError):
                os.kill(random.choice(helpers), signal.SIGKILL)

    def has_ended(self) -> bool:
        if not self._driver.alive:
            if not self._was_killed:
                print(f"{self._program} has ended:\n{self._driver.output()[-1500:]}", file=sys.stderr, flush=True)
                # What is left of it.
                self._driver.kill()
            self._start()
        return False


class Parties:
    """All of them, by their names, until the block is left. starts: how often each was started."""

    def __init__(self, start: dict[str, Callable[[], Party]]) -> None:
        self._start = start
        self.running: dict[str, Party] = {}
        self.starts = Counter[str]()

    def __enter__(self) -> Parties:
        try:
            for name, begin in self._start.items():
                self.running[name] = begin()
                self.starts[name] += 1
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for party in self.running.values():
            party.kill()

    def kill(self, name: str) -> None:
        self.running[name].kill()

    def ended(self) -> set[str]:
        """Those that have come to their end; others that have died are started again."""
        ended = set()
        for name, party in self.running.items():
            before = party.pid
            if party.has_ended():
                ended.add(name)
            self.starts[name] += party.pid != before
        return ended

    def sizes(self, now: float) -> dict[str, Size]:
        """Resident memory of those that are old enough; of a Spark driver, of itself, of its JVM, and of the Python
        processes that Spark has started and ends by itself.
        """
        found: dict[str, Size] = {}
        listed = processes()
        for name, party in self.running.items():
            own = _of(party, listed)
            age = max((one.age for one in own), default=0)
            if age < GROWN_UP_S:
                continue
            java = [one for one in own if one.command == "java"]
            parts = {"JVM": java, "Python": [one for one in own if one.pid == party.pid]} if java else {"": own}
            if java:
                parts["Python of tasks and sources"] = [one for one in own if one not in java and one.pid != party.pid]
            for part, those in parts.items():
                if those is java and age < JVM_GROWN_UP_S:
                    continue
                size = sum(one.size for one in those)
                found[f"{name}: {part}" if part else name] = Size(now, size, age, len(those))
        return found


def _of(party: Party, listed: Sequence[Process]) -> list[Process]:
    key = "session" if isinstance(party, SparkDriver) else "pid"
    return [one for one in listed if getattr(one, key) == party.pid]
