"""A server of TLS before Redis, and the authority that signs the certificates of servers and clients."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.support.network import Proxy, forward

#: What a Sentinel sends first on a connection without TLS.
_OF_SENTINEL = re.compile(rb"SETNAME\r\n\$\d+\r\nsentinel-")
#: The first byte of a connection with TLS.
_HANDSHAKE = b"\x16"


class Authority:
    """Signs certificates. folder: for the files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.certificate, self._key = folder / "ca.crt", folder / "ca.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-subj", "/CN=ca", "-keyout", self._key, "-out", self.certificate),
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


class TlsServer(Proxy):
    """Ends TLS, and forwards to a port without it, which may be set later. handshakes: how many clients.

    Sentinels may connect without TLS.
    """

    def __init__(self, context: ssl.SSLContext, target: int = 0) -> None:
        super().__init__(target)
        self.context, self.handshakes = context, 0

    def carry(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            first = client.recv(1, socket.MSG_PEEK)
            if first == _HANDSHAKE:
                with self.context.wrap_socket(client, server_side=True) as secure:
                    self.handshakes += 1
                    forward(secure, self.target)
            elif _OF_SENTINEL.search(client.recv(1 << 16, socket.MSG_PEEK)):
                forward(client, self.target)
