"""A real Node library, driven from Python."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.support.node_process import Event, NodeError, NodeProcess
from tests.support.wait import PATIENCE_S

__all__ = ["Event", "NodeError", "NodePeer"]

#: How long a peer has to close its connections before its process is killed. Seconds.
GRACE_S = 5


class NodePeer:
    """A Node library with queues, workers and connections of its own, all its queues under one prefix.

    Commands and events are those of tests/node/peer.js:

        peer.call("add", queue="mail", jobs=[{"name": "send", "data": {}, "opts": {}}])
        peer.call("process", queue="mail", concurrency=4)
        peer.wait_for(lambda event: event["event"] == "completed")

    Without `process` it has a separate process, whose clock is `clock_ms` ahead.
    """

    def __init__(
        self, alias: str, url: str, prefix: str, *, clock_ms: int = 0, process: NodeProcess | None = None
    ) -> None:
        self.alias = alias
        self._is_alone = process is None
        self._process = process or NodeProcess(alias, url, clock_ms=clock_ms)
        self._session = self._process.open(prefix)

    @property
    def alive(self) -> bool:
        return self._process.alive

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, cmd: str, timeout: float = PATIENCE_S, **arguments: Any) -> Any:
        """Send a command and return its result; the library's error is raised as NodeError."""
        return self._process.call(self._session, cmd, timeout, **arguments)

    def events(self, event: str | None = None, **fields: Any) -> list[Event]:
        """The events so far, all of them or those with the given name and fields."""
        wanted = fields if event is None else {"event": event, **fields}
        return [seen for seen in self._heard() if wanted.items() <= seen.items()]

    def wait_for(self, predicate: Callable[[Event], bool], timeout: float = PATIENCE_S, what: str = "event") -> Event:
        """The first past or future event for which the predicate is true."""

        def found() -> Event | None:
            return next((event for event in self._heard() if predicate(event)), None)

        self._process.wait(lambda: found() is not None or not self.alive, timeout)
        if (event := found()) is None:
            raise AssertionError(
                f"{self.alias}: no {what} within {timeout:g} s; got {self._heard()[-10:]}\n{self.stderr()}"
            )
        return event

    def wait_for_events(self, event: str, count: int, timeout: float = PATIENCE_S, **fields: Any) -> list[Event]:
        """Waits for so many events of one kind, and returns them."""
        self._process.wait(lambda: len(self.events(event, **fields)) >= count or not self.alive, timeout)
        heard = self.events(event, **fields)
        if len(heard) < count:
            raise AssertionError(
                f"{self.alias}: {len(heard)} of {count} {event!r} events within {timeout:g} s\n{self.stderr()}"
            )
        return heard

    def kill(self) -> None:
        """Kills the process, as a crash does; only for a peer with a separate process."""
        assert self._is_alone, "the process serves other peers, too"
        self._process.kill()

    def close(self) -> None:
        if self.alive:
            with suppress(AssertionError, OSError):
                self._process.close(self._session, GRACE_S)
        if self._is_alone:
            self._process.end(GRACE_S)

    def stderr(self) -> str:
        """The error output of the library."""
        return self._process.stderr()

    def __enter__(self) -> NodePeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _heard(self) -> list[Event]:
        """The events of its session; with a separate process, also errors without a session."""
        return self._process.events(self._session) + (self._process.events(None) if self._is_alone else [])
