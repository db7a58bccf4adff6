"""Ports of servers that tests start and stop."""

from __future__ import annotations

import random
import socket
from typing import Final

#: On 127.0.0.1, no server has it.
UNUSED_PORT: Final = 1


def new_listener() -> socket.socket:
    """Returns a server's socket on a port of 127.0.0.1 below the range of ephemeral ports.

    Clients go on connecting after such a server has ended. Had it an ephemeral port, they could reach the sockets by
    which Spark's JVM gives rows to Python, which accept only one connection.
    """
    while True:
        try:
            return socket.create_server(("127.0.0.1", random.randrange(20_000, 32_000)))
        except OSError:
            continue
