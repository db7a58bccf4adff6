"""A real Node library, driven from Python: tests/node/peer.js behind a pipe."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.support.peers import NODE_DIRECTORY
from tests.support.wait import PATIENCE_S

Event = dict[str, Any]


class NodeError(Exception):
    """The Node library refused: its own message."""


class NodePeer:
    """One process with one Node library, all its queues under one prefix.

    Commands and events are those of tests/node/peer.js:

        peer.call("add", queue="mail", jobs=[{"name": "send", "data": {}, "opts": {}}])
        peer.call("process", queue="mail", concurrency=4)
        peer.wait_for(lambda event: event["event"] == "completed")

    `clock_ms`: how far its clock is ahead.
    """

    def __init__(self, alias: str, url: str, prefix: str, *, clock_ms: int = 0) -> None:
        self.alias = alias
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._replies: dict[int, dict[str, Any]] = {}
        self._events: list[Event] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process runs
        preload = ["--require", "./shifted_clock.js"] if clock_ms else []
        self._process = subprocess.Popen(
            ["node", *preload, "peer.js", alias, url, prefix],
            cwd=NODE_DIRECTORY,
            env={**os.environ, "CLOCK_SHIFT_MS": str(clock_ms)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait_for(lambda event: event["event"] == "ready", what="sign of life")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def call(self, cmd: str, timeout: float = PATIENCE_S, **arguments: Any) -> Any:
        """Send a command and return its result; the library's error is raised as NodeError."""
        number = self._send(cmd, arguments)
        with self._changed:
            answered = self._changed.wait_for(lambda: number in self._replies or not self.alive, timeout)
            reply = self._replies.pop(number, None)
        if reply is None:
            state = "is silent" if not answered else "died"
            raise AssertionError(f"{self.alias} {state} on {cmd}:\n{self.stderr()}")
        if "error" in reply:
            raise NodeError(reply["error"])
        return reply["result"]

    def events(self, event: str | None = None, **fields: Any) -> list[Event]:
        """The events so far, all of them or those with the given name and fields."""
        wanted = fields if event is None else {"event": event, **fields}
        with self._changed:
            return [seen for seen in self._events if wanted.items() <= seen.items()]

    def wait_for(self, predicate: Callable[[Event], bool], timeout: float = PATIENCE_S, what: str = "event") -> Event:
        """The first event, past or to come, that the predicate takes."""

        def found() -> Event | None:
            return next((event for event in self._events if predicate(event)), None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None or not self.alive, timeout)
            event = found()
        if event is None:
            raise AssertionError(
                f"{self.alias}: no {what} within {timeout:g} s; got {self._events[-10:]}\n{self.stderr()}"
            )
        return event

    def wait_for_events(self, event: str, count: int, timeout: float = PATIENCE_S, **fields: Any) -> list[Event]:
        """Wait until that many events of one kind were heard, and return them."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.events(event, **fields)) >= count or not self.alive, timeout)
        heard = self.events(event, **fields)
        if len(heard) < count:
            raise AssertionError(
                f"{self.alias}: {len(heard)} of {count} {event!r} events within {timeout:g} s\n{self.stderr()}"
            )
        return heard

    def freeze(self) -> None:
        """Stop the process where it stands: its locks expire as if its machine hung."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process without a word, as a crash does."""
        self._process.kill()
        self._process.wait()

    def close(self, grace: float = 5) -> None:
        if self.alive:
            try:
                self.call("close", timeout=grace)
                self._process.wait(grace)
            except (AssertionError, OSError, subprocess.TimeoutExpired):
                self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def stderr(self) -> str:
        """What the library complained about."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-4000:]

    def __enter__(self) -> NodePeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, cmd: str, arguments: dict[str, Any]) -> int:
        number = next(self._numbers)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "cmd": cmd, **arguments}).encode() + b"\n")
        self._process.stdin.flush()
        return number

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            with self._changed:
                if "event" in message:
                    self._events.append({**message, "heard": time.time()})
                elif message["id"] is not None:
                    self._replies[message["id"]] = message
                self._changed.notify_all()
        self._process.wait()
        with self._changed:
            self._changed.notify_all()
