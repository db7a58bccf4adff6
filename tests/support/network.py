"""Ports of servers that tests start; servers before Redis that lose replies or hold scripts back, or that end TLS."""

from __future__ import annotations

import os
import random
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
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


#: What a Sentinel sends first on a connection without TLS.
_OF_SENTINEL = re.compile(rb"SETNAME\r\n\$\d+\r\nsentinel-")
#: The first byte of a connection with TLS.
_HANDSHAKE = b"\x16"


class Authority:
    """Signs certificates. folder: for the files."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self.certificate, self._key = folder / f"{name}.crt", folder / f"{name}.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate),
            # Python 3.13 wants them.
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def signed(self, name: str, address: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        """A certificate and its key. address: of the server that has it."""
        certificate, key, request = (self._folder / f"{name}.{kind}" for kind in ("crt", "key", "csr"))
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={address}\nauthorityKeyIdentifier=keyid\n")
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={name}", "-keyout", key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-days", "2", "-extfile", extensions, "-out", certificate),
        )
        return certificate, key

    def server(self, name: str = "server", address: str = "IP:127.0.0.1") -> ssl.SSLContext:
        """What a server needs that only accepts clients with a certificate of this authority."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.certificate))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(*self.signed(name, address))
        return context

    def client(self) -> Mapping[str, str]:
        """The settings of redis-py for a client with a certificate."""
        certificate, key = self.signed("client")
        return {"ssl_ca_certs": str(self.certificate), "ssl_certfile": str(certificate), "ssl_keyfile": str(key)}


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@dataclass
class TlsServer:
    """Ends TLS, and forwards to a port without it. Sentinels may connect without TLS. handshakes: how many clients."""

    port: int
    target: int
    context: ssl.SSLContext
    handshakes: int = 0

    def carry(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            first = client.recv(1, socket.MSG_PEEK)
            if first == _HANDSHAKE:
                with self.context.wrap_socket(client, server_side=True) as secure:
                    self.handshakes += 1
                    self._forward(secure)
            elif _OF_SENTINEL.search(client.recv(1 << 16, socket.MSG_PEEK)):
                self._forward(client)

    def _forward(self, client: socket.socket) -> None:
        """Forwards both directions, until one side disconnects."""
        with socket.create_connection(("127.0.0.1", self.target)) as server:
            while True:
                is_ready = isinstance(client, ssl.SSLSocket) and client.pending()
                readable = [client] if is_ready else select([client, server], [], [])[0]
                for one, other in ((client, server), (server, client)):
                    if one in readable:
                        if not (data := one.recv(1 << 16)):
                            return
                        other.sendall(data)


@contextmanager
def tls_server(context: ssl.SSLContext, target: int = 0) -> Iterator[TlsServer]:
    """Serves on a free port before Redis on the port `target`, which may be set later."""
    with new_listener() as listener:
        server = TlsServer(listener.getsockname()[1], target, context)
        with accepting(listener, server.carry):
            yield server
