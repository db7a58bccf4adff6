"""A proxy before Redis that cuts each connection after a random number of bytes, in the middle of a call or a reply."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from select import select

from tests.support.network import accepting, new_listener


@dataclass
class CuttingProxy:
    """most: the bytes after which a connection is cut, at most; 0: none is cut any more."""

    port: int
    target: int
    random: Random
    most: int
    cuts: int = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def carry(self, client: socket.socket) -> None:
        left = self.random.randint(1, self.most) if self.most else 0
        with client, socket.create_connection(("127.0.0.1", self.target)) as server, suppress(OSError):
            while True:
                readable, _, _ = select([client, server], [], [])
                for source, target in ((client, server), (server, client)):
                    if source not in readable:
                        continue
                    if not (data := source.recv(1 << 16)):
                        return
                    if self.most and len(data) >= left:
                        target.sendall(data[:left])
                        self.cuts += 1
                        return
                    left -= len(data)
                    target.sendall(data)


@contextmanager
def cutting_proxy(target: int, random: Random, most: int) -> Iterator[CuttingProxy]:
    with new_listener() as listener:
        proxy = CuttingProxy(listener.getsockname()[1], target, random, most)
        with accepting(listener, proxy.carry):
            yield proxy
