"""What goes between the package and Redis: calls of scripts, commands inside scripts, and published messages."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from redis import Redis

from spark_bull.core.keys import literal_glob
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.scripts import Command
from tests.support.wait import PATIENCE_S, wait_until

#: `act(name, call)` decides what becomes of a call of the script `name`.
Act = Callable[[str, Callable[[], Any]], Any]


class Died(BaseException):
    """The process has died."""


@contextmanager
def calls_of_scripts(act: Act) -> Iterator[None]:
    script, pipeline = Connection.script, Connection.pipeline

    def acting(self: Connection, name: str, *rest: Any) -> Any:
        return act(name, lambda: script(self, name, *rest))

    def acting_together(self: Connection, commands: Sequence[Command], what: str = "") -> Any:
        def call() -> Any:
            return pipeline(self, commands, what)

        name = re.fullmatch("script `(.+)`", what)
        return act(name[1], call) if name else call()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "script", acting)
        patch.setattr(Connection, "pipeline", acting_together)
        yield


def send_scripts_twice(monkeypatch: pytest.MonkeyPatch, *, alike: bool = False) -> list[str]:
    """Each script is sent again after its reply, with the same keys and arguments; the second reply counts.

    alike: it must equal the first reply, except of `work`, which tells the time, and `discard`, which counts. Returns
    the names of the scripts that are sent from now on, without repetitions.
    """
    script = Connection.script
    names: list[str] = []

    def twice(self: Connection, name: str, *call: Any) -> Any:
        names.append(name)
        first, second = script(self, name, *call), script(self, name, *call)
        assert not alike or first == second or name.endswith(("/work", "/discard")), (
            f"{name} replied {first!r}, then {second!r}"
        )
        return second

    monkeypatch.setattr(Connection, "script", twice)
    return names


_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_SCRIPTS = (b"EVAL", b"EVALSHA")
#: Commands whose last argument is the number of elements.
_POPS = (b"LPOP", b"RPOP", b"SPOP", b"ZPOPMIN", b"ZPOPMAX", b"SSCAN", b"HSCAN", b"ZSCAN")
_RANGES = (b"LRANGE", b"ZRANGE", b"ZREVRANGE")
#: Commands that scan a list.
_WALKS = (b"LREM", b"LINSERT", b"LPOS")
#: Maximum number of bytes of the monitor that are read at a time.
_READ = 1 << 16
#: Commands without a bound.
_UNBOUNDED = (b"KEYS", b"SMEMBERS", b"SORT", b"SUNION", b"SDIFF", b"SINTER")


@dataclass
class ScriptWork:
    """One run of a script: the number of its commands, and of the elements that these name or read."""

    commands: int = 0
    elements: float = 0
    walks: int = 0


@contextmanager
def script_work(client: Redis, *, commands: bool = False, prefix: str = "") -> Iterator[list[ScriptWork]]:
    """Records the scripts that the server runs within the block; the list is complete when the block is left.

    commands: also records commands outside scripts, each as one of its own. prefix: only those with keys of it.
    """
    end = uuid4().hex.encode()
    address = client.connection_pool.connection_kwargs
    lines = bytearray()

    def listen(monitor: socket.socket) -> None:
        # Other clients may send commands after the one that ends the list.
        while end not in lines[-(_READ + 1000) :]:
            lines.extend(monitor.recv(_READ))

    found: list[ScriptWork] = []
    with socket.create_connection((address["host"], address["port"]), timeout=PATIENCE_S) as monitor:
        monitor.sendall(b"MONITOR\r\n")
        listener = threading.Thread(target=listen, args=(monitor,), daemon=True)
        listener.start()
        wait_until(lambda: lines.startswith(b"+OK"), "Redis to monitor")
        yield found
        client.echo(end)
        listener.join(PATIENCE_S)
    selected = False
    for line in lines.split(b"\r\n"):
        _, _, command = line.partition(b"] ")
        words = _WORD.findall(command)
        if not words:
            continue
        name, arguments = words[0].upper(), words[1:]
        if b" lua] " in line:
            # It follows its script, and may name no key.
            if selected:
                _count(found[-1], name, arguments)
            continue
        selected = prefix.encode() in command and (commands or name in _SCRIPTS)
        if selected:
            found.append(ScriptWork())
            if name not in _SCRIPTS:
                _count(found[-1], name, arguments)
    # EVALSHA of a script that the server does not know runs nothing, and EVAL follows.
    found[:] = [script for script in found if script.commands]


def _count(script: ScriptWork, command: bytes, arguments: Sequence[bytes]) -> None:
    script.commands += 1
    script.elements += len(arguments)
    script.walks += command in _WALKS
    if command in _UNBOUNDED:
        script.elements = float("inf")
    elif command in _POPS and len(arguments) > 1:
        script.elements += int(arguments[-1])
    elif command in _RANGES:
        script.elements += _span(*arguments[1:3])


def _span(first: bytes, last: bytes) -> float:
    """The maximum number of elements of a range; a range to the end of the key has no bound."""
    start, stop = int(first), int(last)
    return max(0, stop - start + 1) if (start < 0) == (stop < 0) else float("inf")


@contextmanager
def published(client: Redis, prefix: str, queue: str) -> Iterator[list[tuple[str, str]]]:
    """Collect (channel, message) of one queue; the list is complete when the block is left.

    Bull 1 publishes to `<event>@<queue>`, outside every prefix.
    """
    messages: list[tuple[str, str]] = []
    sentinel = f"{prefix}:{queue}:sentinel:{uuid4()}"
    with client.pubsub() as subscription:
        subscription.psubscribe(f"{literal_glob(prefix)}:{literal_glob(queue)}:*", f"*@{literal_glob(queue)}")
        for _ in range(2):
            subscription.get_message(timeout=PATIENCE_S)
        yield messages
        client.publish(sentinel, b"")
        for message in subscription.listen():
            channel = message["channel"].decode()
            if channel == sentinel:
                return
            if message["type"] == "pmessage":
                messages.append((channel, message["data"].decode()))
