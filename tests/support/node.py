"""Real Node libraries, driven from Python: the packages of each dialect, their processes, and sessions in these."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.wait import PATIENCE_S

NODE_DIRECTORY = Path(__file__).parent.parent / "node"
#: How long a peer has to close its connections before its process is killed. Seconds.
GRACE_S = 5


@dataclass(frozen=True)
class Peer:
    """A Node package by its alias in tests/node/package.json, and its dialect."""

    alias: str
    dialect: str

    def __str__(self) -> str:
        return self.alias

    def among(self, packages: Collection[str]) -> bool:
        """Whether its dialect, its major version, such as "bull-4", or its alias is one of these."""
        return not {self.dialect, self.alias.partition(".")[0], self.alias}.isdisjoint(packages)

    @property
    def custom_ids(self) -> bool:
        return self.alias != "bull-1.0.0"


PEERS = [
    Peer("bull-1.0.0", "bull-1"),
    Peer("bull-1.1.3", "bull-1"),
    Peer("bull-3.29.3", "bull"),
    Peer("bull-4.16.5", "bull"),
    Peer("bullmq-5.81.5", "bullmq"),
    Peer("bullmq-6.7.0", "bullmq"),
]

#: The newest package of each dialect: `make test` compares with these, `make test-rest` with the others.
NEWEST = ("bull-1.1.3", "bull-4.16.5", "bullmq-6.7.0")


def each_peer_of(*packages: str) -> pytest.MarkDecorator:
    """Runs a test with each `peer` of these dialects, major versions or aliases."""
    peers = [
        pytest.param(peer, marks=() if peer.alias in NEWEST else pytest.mark.rest, id=peer.alias)
        for peer in PEERS
        if peer.among(packages)
    ]
    return pytest.mark.parametrize("peer", peers)


Event = dict[str, Any]
T = TypeVar("T")


class NodeError(Exception):
    """The error message of the Node library."""


class NodeProcess:
    """One process with one Node library, with numbered sessions that have separate events.

    `clock_ms`: how far its clock is ahead.
    """

    def __init__(self, alias: str, url: str, *, clock_ms: int = 0) -> None:
        self.alias = alias
        self._numbers = itertools.count(1)
        self._sessions = itertools.count(1)
        self._changed = threading.Condition()
        self._replies: dict[int, dict[str, Any]] = {}
        self._events: dict[int | None, list[Event]] = defaultdict(list)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process runs
        preload = ["--require", "./shifted_clock.js"] if clock_ms else []
        self._process = subprocess.Popen(
            ["node", *preload, "peer.js", alias, url],
            cwd=NODE_DIRECTORY,
            env={**os.environ, "CLOCK_SHIFT_MS": str(clock_ms)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait(lambda: self.events(None) or not self.alive)
        assert self.alive, f"{alias} did not start:\n{self.stderr()}"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self, prefix: str) -> int:
        """Begins a session with one prefix for all its queues, and returns its number."""
        session = next(self._sessions)
        self.call(session, "open", prefix=prefix)
        return session

    def close(self, session: int) -> None:
        self.call(session, "close", GRACE_S)
        self._events.pop(session, None)

    def call(self, session: int, cmd: str, timeout: float = PATIENCE_S, **arguments: Any) -> Any:
        """Send a command and return its result; the library's error is raised as NodeError."""
        number = next(self._numbers)
        assert self._process.stdin is not None
        message = {"id": number, "session": session, "cmd": cmd, **arguments}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        answered = self.wait(lambda: number in self._replies or not self.alive, timeout)
        reply = self._replies.pop(number, None)
        state = "died" if answered else "is silent"
        assert reply is not None, f"{self.alias} {state} on {cmd}:\n{self.stderr()}"
        if "error" in reply:
            raise NodeError(reply["error"])
        return reply["result"]

    def events(self, session: int | None) -> list[Event]:
        """The events of a session so far; None: events without a session."""
        with self._changed:
            return list(self._events[session])

    def wait(self, condition: Callable[[], T], timeout: float = PATIENCE_S) -> T:
        """Waits until the condition holds, which is checked after every message; returns its last value."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Ends the process, by force if it takes longer than GRACE_S."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join()
        self._process.stdout.close()
        self._stderr.close()

    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-4000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            with self._changed:
                if "event" in message:
                    self._events[message.pop("session")].append({**message, "heard": time.time()})
                elif message["id"] is not None:
                    self._replies[message["id"]] = message
                self._changed.notify_all()
        self._process.wait()
        with self._changed:
            self._changed.notify_all()


class NodePeer:
    """A Node library with queues, workers and connections of its own, all its queues under one prefix.

    tests/node/peer.js defines the commands and events:

        peer.call("add", queue="mail", jobs=[{"name": "send", "data": {}, "opts": {}}])
        peer.call("process", queue="mail", concurrency=4)
        peer.wait_for(lambda event: event["event"] == "completed")

    Without `process` it has a separate one, whose clock is `clock_ms` ahead.
    """

    def __init__(
        self, alias: str, url: str, prefix: str, *, clock_ms: int = 0, process: NodeProcess | None = None
    ) -> None:
        self.alias = alias
        self._is_alone = process is None
        self.process = process or NodeProcess(alias, url, clock_ms=clock_ms)
        self._session = self.process.open(prefix)

    def call(self, cmd: str, **arguments: Any) -> Any:
        """Send a command and return its result; the library's error is raised as NodeError."""
        return self.process.call(self._session, cmd, **arguments)

    def events(self, event: str | None = None, **fields: Any) -> list[Event]:
        """The events so far, all of them or those with the given name and fields."""
        wanted = fields if event is None else {"event": event, **fields}
        return [seen for seen in self._heard() if wanted.items() <= seen.items()]

    def wait_for(self, predicate: Callable[[Event], bool], what: str = "event") -> Event:
        """The first past or future event for which the predicate is true."""
        (found, *_) = self._heard_at_last(lambda: [event for event in self._heard() if predicate(event)], 1, what)
        return found

    def wait_for_events(self, event: str, count: int, **fields: Any) -> list[Event]:
        """Waits for `count` events of one kind, and returns them."""
        return self._heard_at_last(lambda: self.events(event, **fields), count, f"events {event!r}")

    def _heard_at_last(self, heard: Callable[[], list[Event]], count: int, what: str) -> list[Event]:
        self.process.wait(lambda: len(heard()) >= count or not self.process.alive)
        found, last = heard(), self._heard()[-10:]
        assert len(found) >= count, f"{self.alias}: {len(found)} of {count} {what}; got {last}\n{self.process.stderr()}"
        return found

    def kill(self) -> None:
        assert self._is_alone, "the process serves other peers, too"
        self.process.kill()

    def close(self) -> None:
        if self.process.alive:
            with suppress(AssertionError, OSError):
                self.process.close(self._session)
        if self._is_alone:
            self.process.end()

    def __enter__(self) -> NodePeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _heard(self) -> list[Event]:
        """The events of its session; with a separate process, also errors without a session."""
        return self.process.events(self._session) + (self.process.events(None) if self._is_alone else [])
