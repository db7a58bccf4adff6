"""A connection that measures the CPU time that Redis takes for each call.

The slow log has the wall time of a script, which is longer on a busy machine: Redis waits for a core meanwhile.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from spark_bull.queue.core.handle import QueueHandle
from spark_bull.store.connection import Command, Connection
from spark_bull.store.scripts import Value

T = TypeVar("T")


def cpu_of_process(pid: int) -> float:
    """The CPU time of a running process on this machine so far, in s, to the nanosecond."""
    # The clock id of a process, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | 2)


@dataclass
class Calls:
    """CPU times of Redis by the name of the script or command, in s."""

    pid: int
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def timed(self, name: str, call: Callable[[], T]) -> T:
        before = cpu_of_process(self.pid)
        result = call()
        self.times[name].append(cpu_of_process(self.pid) - before)
        return result


class ClockedConnection(Connection):
    """Only for one client of a server: calls of others would count, too."""

    def __init__(self, connection: Connection, calls: Calls) -> None:
        super().__init__(connection.settings, connection.home)
        self._calls = calls

    def call(self, *command: Value) -> Any:
        return self._calls.timed(str(command[0]), lambda: super(ClockedConnection, self).call(*command))

    def pipeline(self, commands: Sequence[Command], what: str = "a command") -> list[Any]:
        return self._calls.timed("pipeline", lambda: super(ClockedConnection, self).pipeline(commands, what))

    def replies(self, commands: Sequence[Command]) -> list[Any]:
        return self._calls.timed("pipeline", lambda: super(ClockedConnection, self).replies(commands))

    def script(self, name: str, keys: Mapping[str, Any], args: Mapping[str, Any] | None = None) -> Any:
        return self._calls.timed(name, lambda: super(ClockedConnection, self).script(name, keys, args))


def clocked(handle: QueueHandle, pid: int) -> tuple[QueueHandle, Calls]:
    """The same queue of the server with this process id, and the times of the calls that are made through it."""
    calls = Calls(pid)
    return replace(handle, connection=ClockedConnection(handle.connection, calls)), calls
