"""A proxy before Redis that loses replies: Redis runs the script, and the client is disconnected without a reply.

It can also hold scripts back: from a given time on they are not forwarded, and the client waits.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from select import select

from tests.support.listening import accepting
from tests.support.ports import new_listener

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
