"""Redis as managed services offer it: with fewer commands, without RESP3, behind a proxy, by TLS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from spark_bull import EmbeddedRedis
from tests.support.network import IdleProxy
from tests.support.redis_servers import PASSWORD, USER
from tests.support.tls import Authority, TlsServer

#: After this time without a byte, a proxy ends a connection, also one whose command blocks.
IDLE_S: Final = 0.2
_USER: Final = f"{USER} on >{PASSWORD} ~* &* +@all"
#: What services take away with the rights of their users.
_RIGHTS: Final = "-@admin -@dangerous -client -config -info -script"
#: Commands that a server lacks, or has under another name.
_RENAMED: Final = {
    **dict.fromkeys(("CLIENT", "CONFIG", "DEBUG", "FLUSHALL", "FLUSHDB", "KEYS", "MONITOR", "SCRIPT"), '""'),
    "INFO": "INFOX",
}
_WITHOUT_HELLO: Final = {"HELLO": '""'}


@dataclass(frozen=True)
class Managed:
    """url: for users. server: for the test, which has all that the server has. proxy: that ends idle connections."""

    url: str
    server: EmbeddedRedis
    proxy: IdleProxy | None = None


def _renaming(names: Mapping[str, str], user: str = _USER) -> dict[str, str]:
    """The configuration of a server."""
    # A setting is a line of the configuration of Redis.
    lines = [f"rename-command {name} {new}" for name, new in names.items()]
    return {"user": "\n".join((user, *lines))}


def _direct(config: Mapping[str, str]) -> Callable[[ExitStack, Path], Managed]:
    def start(stack: ExitStack, _: Path) -> Managed:
        server = stack.enter_context(EmbeddedRedis(config))
        return Managed(f"redis://{USER}:{PASSWORD}@127.0.0.1:{server.port}/0", server)

    return start


def _idle(stack: ExitStack, folder: Path, config: Mapping[str, str] | None = None) -> Managed:
    server = _direct(config or {"user": _USER})(stack, folder).server
    proxy = stack.enter_context(IdleProxy(server.port, IDLE_S))
    return Managed(f"redis://{USER}:{PASSWORD}@127.0.0.1:{proxy.port}/0", server, proxy)


def _tls(stack: ExitStack, folder: Path) -> Managed:
    server = _direct({"user": _USER})(stack, folder).server
    return Managed(_tls_url(stack, folder, server.port), server)


def _tls_url(stack: ExitStack, folder: Path, port: int) -> str:
    authority = Authority(folder)
    secure = stack.enter_context(TlsServer(authority.server(), port))
    return f"rediss://{USER}:{PASSWORD}@127.0.0.1:{secure.port}/0?{urlencode(authority.client())}"


def _all_at_once(stack: ExitStack, folder: Path) -> Managed:
    config = _renaming({**_RENAMED, **_WITHOUT_HELLO}, f"{_USER} {_RIGHTS}")
    behind = _idle(stack, folder, config)
    assert behind.proxy is not None
    return Managed(_tls_url(stack, folder, behind.proxy.port), behind.server, behind.proxy)


#: What a service lacks or does -> starts such a Redis. folder: for certificates.
LIMITS: Final[Mapping[str, Callable[[ExitStack, Path], Managed]]] = {
    "rights": _direct({"user": f"{_USER} {_RIGHTS}"}),
    "names": _direct(_renaming(_RENAMED)),
    "resp2": _direct(_renaming(_WITHOUT_HELLO)),
    "idle": _idle,
    "tls": _tls,
    "all at once": _all_at_once,
}
