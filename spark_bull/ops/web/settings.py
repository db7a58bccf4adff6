"""The settings of the web server, which are checked before it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from spark_bull.core.errors import OptionError, check_encodable
from spark_bull.core.options.arguments import ConnectionArguments
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import Options, QueueOptions
from spark_bull.core.store.connection import Connection

READ_TOKEN_VARIABLE: Final = "SPARK_BULL_READ_TOKEN"
WRITE_TOKEN_VARIABLE: Final = "SPARK_BULL_WRITE_TOKEN"
#: Minimum length of a token, characters.
MIN_TOKEN: Final = 16
#: For how long a request retries calls to Redis, ms: a browser should not wait as long as a program.
RETRY_MS: Final = 2_000
#: Timeout of one call to Redis, ms: a Redis that hangs must not keep all threads of the server for long.
CALL_TIMEOUT_MS: Final = 5_000
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


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
      read_only: whether nobody can write, not even with the write token.
      host_names: other names in the header Host that the server accepts, such as a reverse proxy's.

    Raises:
      OptionError: for a token that is too short, equal tokens, and an address other than loopback without tokens.
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
    read_only: bool = False
    host_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_encodable("queues", self.queues)
        tokens = {"read token": self.read_token, "write token": self.write_token}
        for name, token in tokens.items():
            if token is not None and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable()):
                raise OptionError(
                    f"expected the {name} to have at least {MIN_TOKEN} printable ASCII characters, got {len(token)}: "
                    "create one with `openssl rand -hex 32`"
                )
        if self.read_token is not None and self.read_token == self.write_token:
            raise OptionError("expected different tokens for reading and writing, got the same one: change one of them")
        if not self.is_loopback and self.read_token is None and self.write_token is None:
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
    def allows_writing(self) -> bool:
        """Whether someone can write."""
        return self.write_token is not None and not self.read_only

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
