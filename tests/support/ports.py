"""Ports of servers that tests start and stop."""

from __future__ import annotations

import os
import random
import socket
from typing import Final

#: On 127.0.0.1, no server has it.
UNUSED_PORT: Final = 1
#: The bus port of a cluster's node is higher by this.
BUS_DISTANCE: Final = 10_000


class OwnPorts:
    """Chooses ports that no other process of pytest chooses, and none of them twice until all were chosen.

    A port is free until its server starts, and again while the server restarts: another one could take it. The process
    that replaces a crashed one has the ports of an earlier one.
    """

    def __init__(self) -> None:
        self._process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        self._processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        self._chosen: set[int] = set()
        # Hypothesis gives the shared random numbers of all processes the same seed.
        self._random = random.SystemRandom()

    def randrange(self, first: int, last: int) -> int:
        """A port from `first` to below `last`."""
        # Bus ports included.
        number = self._process % self._processes
        own = [port for port in range(first, last) if port % BUS_DISTANCE % self._processes == number]
        left = [port for port in own if port not in self._chosen]
        if not left:
            self._chosen.clear()
        port = self._random.choice(left or own)
        self._chosen.update((port - BUS_DISTANCE, port, port + BUS_DISTANCE))
        return port


#: For all servers of this process.
own_ports: Final = OwnPorts()


def new_listener() -> socket.socket:
    """Returns a server's socket on a port of 127.0.0.1 below the range of ephemeral ports.

    Clients go on connecting after such a server has ended. Had it an ephemeral port, they could reach the sockets by
    which Spark's JVM gives rows to Python, which accept only one connection.
    """
    while True:
        try:
            return socket.create_server(("127.0.0.1", own_ports.randrange(20_000, 32_000)))
        except OSError:
            continue
