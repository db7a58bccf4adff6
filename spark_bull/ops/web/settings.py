"""The settings of the web server, which are checked before it starts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import ip_address
from typing import Final

from spark_bull.core.errors import OptionError, check_encodable
from spark_bull.core.options.arguments import ConnectionArguments
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.parts import Options
from spark_bull.core.options.table import QueueOptions
from spark_bull.core.store.connection import Connection

READ_TOKEN_VARIABLE: Final = "SPARK_BULL_READ_TOKEN"
WRITE_TOKEN_VARIABLE: Final = "SPARK_BULL_WRITE_TOKEN"
#: Minimum length of a token, characters.
MIN_TOKEN: Final = 16
#: For how long a request retries calls to Redis, ms: a browser should not wait as long as a program.
RETRY_MS: Final = 2_000
#: Timeout of one call to Redis, ms: a Redis that hangs must not keep all threads of the server for long.
CALL_TIMEOUT_MS: Final = 5_000
#: A path without an end, and its first parts that the server has itself.
_ROOT: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_OWN_PATHS: Final = [[name] for name in ("api", "jobs", "login", "logout", "queues", "schedulers", "static")]
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class Role(IntEnum):
    """What a caller may do; each role includes those before it."""

    NONE = 0
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Token:
    """A token, what it is for, and names or globs of the queues that exist for those who have it."""

    text: str = field(repr=False)
    role: Role
    queues: tuple[str, ...] = ("*",)


@dataclass(frozen=True)
class WebSettings:
    """The settings of a web server.

    Parameters:
      queues: names or globs of the queues that it shows and changes; others do not exist for its users.
      url: URL of Redis; default: $SPARK_BULL_URL, else redis://localhost:6379/0.
      prefix: first part of every key; default: bull.
      scan_keys: whether queues are found by a scan of all keys; False: those that spark_bull has written or worked.
      protocol: dialect of the queues; default: detected from Redis.
      host: address that the server listens on.
      port: port that the server listens on; 0: a free one.
      read_token: token for reading; None: on a loopback address, anyone can read.
      write_token: token for reading and writing; None: nobody can write.
      tokens: further tokens, each for some queues.
      read_only: whether nobody can write, not even with the write token.
      host_names: other names in the header Host that the server accepts, such as a reverse proxy's.
      root_path: path under which a reverse proxy has the server, such as /bull, whether or not the proxy removes it.

    Raises:
      OptionError: for a token that is too short, equal tokens, an address other than loopback without tokens, and a
        wrong path.
    """

    queues: tuple[str, ...] = ("*",)
    url: str | None = field(default=None, repr=False)
    prefix: str | None = None
    scan_keys: bool = True
    protocol: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    read_token: str | None = field(default=None, repr=False)
    write_token: str | None = field(default=None, repr=False)
    tokens: tuple[Token, ...] = ()
    read_only: bool = False
    host_names: tuple[str, ...] = ()
    root_path: str = ""

    def __post_init__(self) -> None:
        check_encodable("queues", self.queues)
        if not _ROOT.fullmatch(self.root_path) or self.root_path.split("/")[1:2] in _OWN_PATHS:
            raise OptionError(
                f"expected --root-path to be a path such as /bull or /tools/bull, got: {self.root_path[:200]!r}"
            )
        given = [(f"{token.role.name.lower()} token", token.text) for token in self.all_tokens]
        for name, text in given:
            if len(text) < MIN_TOKEN or not text.isascii() or not text.isprintable():
                raise OptionError(
                    f"expected the {name} to have at least {MIN_TOKEN} printable ASCII characters, got {len(text)}: "
                    "create one with `openssl rand -hex 32`"
                )
        if len({text for _, text in given}) < len(given):
            raise OptionError("expected different tokens for reading and writing, got the same one: change one of them")
        if not self.is_loopback and not self.all_tokens:
            raise OptionError(
                f"expected a token to listen on {self.host}, which other machines can reach: set "
                f"${READ_TOKEN_VARIABLE}, ${WRITE_TOKEN_VARIABLE} or both (`openssl rand -hex 32` creates one), or "
                "listen on 127.0.0.1"
            )

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def all_tokens(self) -> tuple[Token, ...]:
        """All tokens; the ones for reading and for writing are for all queues of the server."""
        own = (Role.READ, self.read_token), (Role.WRITE, self.write_token)
        return (*(Token(text, role) for role, text in own if text is not None), *self.tokens)

    @property
    def demands_token(self) -> bool:
        """Whether reading needs a token. A token for some queues would be of no use beside reading without one."""
        limits = (token.role is Role.READ or token.queues != ("*",) for token in self.all_tokens)
        return not self.is_loopback or any(limits)

    @property
    def allows_writing(self) -> bool:
        """Whether someone can write."""
        return not self.read_only and any(token.role is Role.WRITE for token in self.all_tokens)

    @property
    def accepted_hosts(self) -> frozenset[str]:
        """Names in the header Host that are accepted; none: all."""
        if self.is_loopback:
            return frozenset(name.lower() for name in (*LOOPBACK_NAMES, self.host, *self.host_names))
        return frozenset(name.lower() for name in (*self.host_names, *((self.host,) if self.host_names else ())))

    @property
    def arguments(self) -> ConnectionArguments:
        """The arguments of the connection and of the queues."""
        return {
            "url": self.url,
            "prefix": self.prefix,
            "scan_keys": self.scan_keys,
            "protocol": self.protocol,
            "call_timeout_ms": CALL_TIMEOUT_MS,
            "retry_ms": RETRY_MS,
        }

    @property
    def options(self) -> Options:
        """The same, parsed."""
        return parse_arguments(self.arguments, QueueOptions)

    def connection(self) -> Connection:
        """The connection to Redis. Raises OptionError for a wrong URL."""
        return Connection(self.options.redis)
