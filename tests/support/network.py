"""Ports of servers that tests start, and proxies before Redis that lose replies, or end idle connections."""

from __future__ import annotations

import os
import random
import re
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from select import select
from typing import Final, TypeVar

Self = TypeVar("Self", bound="Proxy")

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


def forward(
    client: socket.socket, port: int, idle_s: float | None = None, passed: Callable[[bytes, bool], bytes] | None = None
) -> bool:
    """Forwards both directions to a port, until one side disconnects; true if nothing was sent for `idle_s` instead.

    passed: gets bytes, and whether they come from the client; returns those to forward. If it leaves any out, the
    connection ends.
    """
    with socket.create_connection(("127.0.0.1", port)) as server:
        while True:
            is_ready = isinstance(client, ssl.SSLSocket) and client.pending()
            readable = [client] if is_ready else select([client, server], [], [], idle_s)[0]
            if not readable:
                return True
            for one, other in ((client, server), (server, client)):
                if one in readable:
                    data = one.recv(1 << 20)
                    sent = passed(data, one is client) if passed and data else data
                    other.sendall(sent)
                    if not data or len(sent) < len(data):
                        return False


class Proxy:
    """Serves before Redis on the port `target` until the block is left. port: its own one."""

    def __init__(self, target: int) -> None:
        self.target, self.port = target, 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def carry(self, client: socket.socket) -> None:
        """Serves a connection until it ends."""
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        self._listener = new_listener()
        self.port = self._listener.getsockname()[1]
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._server.join()
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self.carry, args=(client,), daemon=True).start()


class IdleProxy(Proxy):
    """Ends connections on which nothing was sent for `idle_s`. ended: how many; open: how many are not yet."""

    def __init__(self, target: int, idle_s: float) -> None:
        super().__init__(target)
        self.idle_s, self.ended, self.open = idle_s, 0, 0

    def carry(self, client: socket.socket) -> None:
        with self.lock:
            self.open += 1
        was_idle = False
        with client, suppress(OSError):
            was_idle = forward(client, self.target, self.idle_s)
        with self.lock:
            self.open -= 1
            self.ended += was_idle


SCRIPT = re.compile(rb"\r\nEVAL(SHA)?\r\n")


class LosingProxy(Proxy):
    """Loses the reply to every `each`-th script (0: to none), and forwards no script while `held` returns true."""

    def __init__(self, target: int, each: int, held: Callable[[], bool] | None = None) -> None:
        super().__init__(target)
        self.each, self.held = each, held
        self.scripts = self.lost = 0

    def carry(self, client: socket.socket) -> None:
        is_chosen = False

        def passed(data: bytes, is_request: bool) -> bytes:
            nonlocal is_chosen
            if not is_request:
                return b"" if is_chosen else data
            if self.held and SCRIPT.search(data) and self.held():
                # Until the client disconnects.
                while client.recv(1 << 20):
                    pass
                return b""
            is_chosen = self._is_chosen(data) or is_chosen
            return data

        with client, suppress(OSError):
            forward(client, self.target, passed=passed)

    def _is_chosen(self, request: bytes) -> bool:
        if not SCRIPT.search(request):
            return False
        with self.lock:
            self.scripts += 1
            chosen = bool(self.each) and self.scripts % self.each == 0
            self.lost += chosen
            return chosen
