"""Redis as managed services offer it: with fewer commands, without RESP3, behind a proxy, by TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
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
#: Commands that a server lacks, or has under another name; a setting is a line of the configuration of Redis.
_LACKING: Final = ("CLIENT", "CONFIG", "DEBUG", "FLUSHALL", "FLUSHDB", "KEYS", "MONITOR", "SCRIPT")
_RENAMED: Final = "".join(f'\nrename-command {name} ""' for name in _LACKING) + "\nrename-command INFO INFOX"
_WITHOUT_HELLO: Final = '\nrename-command HELLO ""'
#: What a service lacks or does -> the setting `user` of its server, and what stands before that.
LIMITS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "rights": (f"{_USER} {_RIGHTS}", ()),
    "names": (_USER + _RENAMED, ()),
    "resp2": (_USER + _WITHOUT_HELLO, ()),
    "idle": (_USER, ("idle",)),
    "tls": (_USER, ("tls",)),
    "all at once": (f"{_USER} {_RIGHTS}{_RENAMED}{_WITHOUT_HELLO}", ("idle", "tls")),
}


@dataclass(frozen=True)
class Managed:
    """url: for users. server: for the test, which has all that the server has. proxy: that ends idle connections."""

    url: str
    server: EmbeddedRedis
    proxy: IdleProxy | None


@contextmanager
def managed(limit: str, folder: Path) -> Iterator[Managed]:
    """Starts a Redis with one of LIMITS. folder: for certificates."""
    user, before = LIMITS[limit]
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis({"user": user}))
        proxy = stack.enter_context(IdleProxy(server.port, IDLE_S)) if "idle" in before else None
        port, scheme, settings = (proxy or server).port, "redis", ""
        if "tls" in before:
            authority = Authority(folder)
            port, scheme = stack.enter_context(TlsServer(authority.server(), port)).port, "rediss"
            settings = f"?{urlencode(authority.client())}"
        yield Managed(f"{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port}/0{settings}", server, proxy)
