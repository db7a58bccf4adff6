"""A proxy before Redis that loses replies: the command is carried out, the client hears nothing and is cut off."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class LosingProxy:
    """Loses the reply to every `each`-th script."""

    port: int
    target: int
    each: int
    scripts: int = 0
    lost: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        """One request, one reply: clients of ours don't send a second command before."""
        with client, socket.create_connection(("127.0.0.1", self.target)) as server, suppress(OSError):
            while request := client.recv(1 << 20):
                server.sendall(request)
                reply = server.recv(1 << 20)
                if self._is_lost(request):
                    return
                client.sendall(reply)

    def _is_lost(self, request: bytes) -> bool:
        with self._lock:
            self.scripts += b"EVAL" in request
            lost = b"EVAL" in request and self.scripts % self.each == 0
            self.lost += lost
            return lost


@contextmanager
def losing_proxy(target: int, each: int) -> Iterator[LosingProxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = LosingProxy(listener.getsockname()[1], target, each)
        server = threading.Thread(target=proxy.serve, args=(listener,), daemon=True)
        server.start()
        yield proxy
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    server.join()
