"""Ports of servers that tests start and stop."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

#: On 127.0.0.1, no server has it.
UNUSED_PORT: Final = 1
#: The processes of pytest-xdist, and the number of this one.
_PROCESSES: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_NUMBER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


class OwnShare(random.Random):
    """Draws from the share of this process in a range, so that no other one takes a port of it meanwhile."""

    def randrange(self, start: int, stop: int) -> int:  # type: ignore[override]
        size = (stop - start) // _PROCESSES
        first = start + _NUMBER % _PROCESSES * size
        return super().randrange(first, first + size)


_DRAW: Final = OwnShare()


@contextmanager
def own_ports() -> Iterator[None]:
    """Servers that are started in the block have ports of this process.

    One that is killed, or not started yet, does not keep its port from the servers of other processes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_bull.embedded.redis.random", _DRAW)
        yield


def new_listener() -> socket.socket:
    """Returns a server's socket on a port of 127.0.0.1 below the range of ephemeral ports.

    Clients go on connecting after such a server has ended. Had it an ephemeral port, they could reach the sockets by
    which Spark's JVM gives rows to Python, which accept only one connection.
    """
    while True:
        try:
            return socket.create_server(("127.0.0.1", _DRAW.randrange(20_000, 32_000)))
        except OSError:
            continue
