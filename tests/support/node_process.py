"""A process with one real Node library: tests/node/peer.js behind a pipe, shared by several sessions."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from tests.support.peers import NODE_DIRECTORY
from tests.support.wait import PATIENCE_S

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
        self.wait(lambda: self.events(None) or not self.alive, PATIENCE_S)
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
        self.call(session, "open", PATIENCE_S, prefix=prefix)
        return session

    def close(self, session: int, grace: float) -> None:
        """Ends a session: its workers, listeners and connections."""
        self.call(session, "close", grace)
        self._events.pop(session, None)

    def call(self, session: int, cmd: str, timeout: float, **arguments: Any) -> Any:
        """Send a command and return its result; the library's error is raised as NodeError."""
        number = self._send({"session": session, "cmd": cmd, **arguments})
        answered = self.wait(lambda: number in self._replies or not self.alive, timeout)
        reply = self._replies.pop(number, None)
        if reply is None:
            state = "died" if answered else "is silent"
            raise AssertionError(f"{self.alias} {state} on {cmd}:\n{self.stderr()}")
        if "error" in reply:
            raise NodeError(reply["error"])
        return reply["result"]

    def events(self, session: int | None) -> list[Event]:
        """The events of a session so far; None: events without a session."""
        with self._changed:
            return list(self._events[session])

    def wait(self, condition: Callable[[], T], timeout: float) -> T:
        """Waits until the condition holds, which is checked after every message; returns its last value."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def kill(self) -> None:
        """Kills the process, as a crash does."""
        self._process.kill()
        self._process.wait()

    def end(self, grace: float) -> None:
        """Ends the process, by force if it takes longer than `grace` seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join()
        self._process.stdout.close()
        self._stderr.close()

    def stderr(self) -> str:
        """The error output of the library."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-4000:]

    def _send(self, message: dict[str, Any]) -> int:
        number = next(self._numbers)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, **message}).encode() + b"\n")
        self._process.stdin.flush()
        return number

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
