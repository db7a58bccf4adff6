"""A server for a test: it accepts connections in a thread, and handles each in a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


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
