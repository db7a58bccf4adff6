"""Ports of servers that tests start, and proxies before Redis that lose replies, or end idle connections."""

from __future__ import annotations

import os
import random
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from select import select
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


@contextmanager
def accepting(listener: socket.socket, handle: Callable[[socket.socket], None]) -> Iterator[None]:
    """Calls `handle(connection)` for each connection, until the block is left."""

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=handle, args=(client,), daemon=True).start()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    yield
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    server.join()


def forward(client: socket.socket, port: int, idle_s: float | None = None) -> bool:
    """Forwards both directions to a port, until one side disconnects; true if nothing was sent for `idle_s` instead."""
    with socket.create_connection(("127.0.0.1", port)) as server:
        while True:
            is_ready = isinstance(client, ssl.SSLSocket) and client.pending()
            readable = [client] if is_ready else select([client, server], [], [], idle_s)[0]
            if not readable:
                return True
            for one, other in ((client, server), (server, client)):
                if one in readable:
                    if not (data := one.recv(1 << 16)):
                        return False
                    other.sendall(data)


@dataclass
class IdleProxy:
    """Ends connections on which nothing was sent for `idle_s`. ended: how many; open: how many are not yet."""

    port: int
    target: int
    idle_s: float
    ended: int = 0
    open: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def carry(self, client: socket.socket) -> None:
        with self._lock:
            self.open += 1
        was_idle = False
        with client, suppress(OSError):
            was_idle = forward(client, self.target, self.idle_s)
        with self._lock:
            self.open -= 1
            self.ended += was_idle


@contextmanager
def idle_proxy(target: int, idle_s: float) -> Iterator[IdleProxy]:
    with new_listener() as listener:
        proxy = IdleProxy(listener.getsockname()[1], target, idle_s)
        with accepting(listener, proxy.carry):
            yield proxy


SCRIPT = re.compile(rb"\r\nEVAL(SHA)?\r\n")


@dataclass
class LosingProxy:
    """Loses the reply to every `each`-th script (0: to none), and forwards no script while `held` returns true."""

    port: int
    target: int
    each: int
    held: Callable[[], bool] | None = None
    scripts: int = 0
    lost: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def carry(self, client: socket.socket) -> None:
        """Forwards both directions, until one side disconnects or the reply to a chosen script arrives."""
        chosen = False
        with client, socket.create_connection(("127.0.0.1", self.target)) as server, suppress(OSError):
            while True:
                readable, _, _ = select([client, server], [], [])
                if client in readable:
                    if not (request := client.recv(1 << 20)):
                        return
                    if self.held and SCRIPT.search(request) and self.held():
                        # Until the client disconnects.
                        while client.recv(1 << 20):
                            pass
                        return
                    chosen = self._is_chosen(request) or chosen
                    server.sendall(request)
                if server in readable:
                    if not (reply := server.recv(1 << 20)) or chosen:
                        return
                    client.sendall(reply)

    def _is_chosen(self, request: bytes) -> bool:
        if not SCRIPT.search(request):
            return False
        with self._lock:
            self.scripts += 1
            chosen = bool(self.each) and self.scripts % self.each == 0
            self.lost += chosen
            return chosen


@contextmanager
def losing_proxy(target: int, each: int, held: Callable[[], bool] | None = None) -> Iterator[LosingProxy]:
    with new_listener() as listener:
        proxy = LosingProxy(listener.getsockname()[1], target, each, held)
        with accepting(listener, proxy.carry):
            yield proxy
