"""The settings of a connection to Redis: URLs, which are shown without secrets, options and environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from spark_bull.core.errors import ENCODABLE, OptionError, expected
from spark_bull.core.options.values import AddressPairs, addresses

_SCHEMES: Final = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
_SENTINEL_PORT: Final = 26379


class Sentinels(NamedTuple):
    """Sentinels and the name of the primary that they watch."""

    addresses: tuple[tuple[str, int], ...]
    service: str


def urls_of(text: str) -> list[str]:
    """The URLs of the servers of shards, which spaces or commas separate; or the one URL."""
    return re.split(r"[\s,]+(?=[a-z+]+://)", text.strip(", \t\n"))


def check_url(text: str, name: str = "url") -> None:
    """Raises OptionError unless an option has the address of a Redis, or of several. The message has no password."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise expected(name, ENCODABLE, masked(text)) from None
    for url in urls_of(text):
        _check_one(url, name)


def _check_one(url: str, name: str) -> None:
    scheme = url.partition("://")[0] if "://" in url else "none"
    if scheme not in _SCHEMES:
        *others, last = (f"{one}://" for one in _SCHEMES)
        raise OptionError(f"expected `{name}` to start with {', '.join(others)} or {last}, got: {masked(url)!r}")
    is_sentinel = scheme.endswith("+sentinel")
    path = "/[^/]+(/[0-9]*)?" if is_sentinel else "(/[0-9]*)?"
    try:
        parts = [urlsplit(one) for one in server_urls(url)]
        is_valid = scheme == "unix" or all(
            part.port != 0 and not part.fragment and re.fullmatch(path, part.path) for part in parts
        )
    except ValueError:
        is_valid = False
    if not is_valid or any("@" in part.query for part in parts):
        form = "host[:port][,host[:port]…]" + ("/name of the primary" if is_sentinel else "") + "[/database]"
        raise OptionError(
            f"expected `{name}` to be {scheme}://[user[:password]@]{form}, got: {masked(url)!r}: "
            "percent-encode a password with one of / ? # @ : [ ], or pass it as `password`"
        )


def server_urls(url: str) -> list[str]:
    """A URL for each server that a URL lists, as in `redis://a:6379,b:6379/0`. Raises ValueError for no URL."""
    scheme, _, rest = url.partition("://")
    if scheme == "unix":
        return [url]
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    end = rest[len(parts.netloc) :]
    return [f"{scheme}://{login}{at}{host}{end}" for host in hosts.split(",")]


def sentinels_of(url: str) -> Sentinels | None:
    """The Sentinels of a valid URL; None if it has the address of Redis itself."""
    parts = [urlsplit(one) for one in server_urls(url)]
    if not parts[0].scheme.endswith("+sentinel"):
        return None
    addresses = tuple((part.hostname or "localhost", part.port or _SENTINEL_PORT) for part in parts)
    return Sentinels(addresses, unquote(parts[0].path.split("/")[1]))


def at_address(url: str, host: str, port: int) -> str:
    """The URL of a server that Sentinels, or a node of a cluster, have named: with the login and settings of `url`."""
    parts = urlsplit(server_urls(url)[0])
    login, at, _ = parts.netloc.rpartition("@")
    scheme, _, is_sentinel = parts.scheme.partition("+")
    path = parts.path.partition("/")[2].partition("/")[2] if is_sentinel else parts.path[1:]
    place = f"[{host}]" if ":" in host else host
    return f"{scheme}://{login}{at}{place}:{port}/{path}{'?' if parts.query else ''}{parts.query}"


def without_secrets(text: str) -> str:
    """Scheme, servers and path of valid URLs."""
    parts = [urlsplit(url) for url in urls_of(text)]
    return " ".join(f"{one.scheme}://{one.netloc.rpartition('@')[2]}{one.path}" for one in parts)


def masked(text: str) -> str:
    """Masks what is, or may be, a secret in URLs, which may be invalid."""
    return " ".join(map(_masked, urls_of(text)))


def _masked(url: str) -> str:
    scheme, separator, rest = url.rpartition("://")
    # Several URLs with a wrong separator.
    scheme = re.sub(r".*@", "***@", scheme, flags=re.DOTALL)
    _, at, place = rest.rpartition("@")
    place, question, query = place.partition("?")
    if scheme != "unix":
        # A non-numeric port may be a password without a host.
        place = re.sub(r"(^|[^:\[]):(?![\d/]*(?:[/,]|$))[^\],/]*(?=[/,]|$)", r"\1:***", place)
    hidden = question and "password" in query.lower()
    return f"{scheme}{separator}{'***@' if at else ''}{place}{question}{'***' if hidden else query}"


URL_VARIABLE: Final = "SPARK_BULL_URL"
PASSWORD_VARIABLE: Final = "SPARK_BULL_PASSWORD"
ADDRESS_MAP_VARIABLE: Final = "SPARK_BULL_ADDRESS_MAP"
_DEFAULT_URL: Final = "redis://localhost:6379/0"


@dataclass(frozen=True)
class RedisSettings:
    """Connection settings. Picklable; the repr contains no secrets.

    assumed: whether no address was given. scan_keys: whether all keys are scanned to find queues.
    addresses: those that servers announce, and those to connect to instead.
    """

    url: str = field(repr=False)
    password: str | None = field(default=None, repr=False)
    timeout_ms: int = 30_000
    retry_ms: int = 20_000
    extra: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    assumed: bool = False
    scan_keys: bool = True
    addresses: AddressPairs = ()
    where: str = field(init=False, default="")

    def __post_init__(self) -> None:
        check_url(self.url)
        try:
            (self.password or "").encode()
        except UnicodeEncodeError:
            raise OptionError(f"expected `password` to be {ENCODABLE}, got another one, which is not shown") from None
        object.__setattr__(self, "where", without_secrets(self.url))


def redis_settings(options: Mapping[str, Any], extra: Mapping[str, str]) -> RedisSettings:
    """Returns the settings by options, by their names in Python, and further ones of redis-py.

    The URL is `url` or `shard_urls`, else $SPARK_BULL_URL, else localhost. The password comes from the option, else
    from the URL, else from $SPARK_BULL_PASSWORD. Other processes, such as executors, may not have these variables.
    Raises OptionError for a bad value of a variable.
    """
    given = options["shard_urls"] or options["url"] or os.environ.get(URL_VARIABLE)
    url, password, pairs = given or _DEFAULT_URL, options["password"], options["address_map"]
    check_url(url)
    parts = [urlsplit(one) for one in urls_of(url)]
    if password is None and not any(one.password or parse_qs(one.query).get("password") for one in parts):
        password = os.environ.get(PASSWORD_VARIABLE)
    if pairs is None:
        pairs = addresses(f"${ADDRESS_MAP_VARIABLE}", os.environ.get(ADDRESS_MAP_VARIABLE, ""))
    return RedisSettings(
        url,
        password or None,
        options["call_timeout_ms"],
        options["retry_ms"],
        tuple(sorted(extra.items())),
        not given,
        options["scan_keys"],
        pairs,
    )
