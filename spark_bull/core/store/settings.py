"""The settings of a connection to Redis, from options and environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import parse_qs, urlsplit

from spark_bull.core.errors import ENCODABLE, OptionError
from spark_bull.core.options.parse import Options
from spark_bull.core.options.urls import check_url, urls_of, without_secrets
from spark_bull.core.options.values import Address, addresses

URL_VARIABLE: Final = "SPARK_BULL_URL"
PASSWORD_VARIABLE: Final = "SPARK_BULL_PASSWORD"
ADDRESS_MAP_VARIABLE: Final = "SPARK_BULL_ADDRESS_MAP"


@dataclass(frozen=True)
class RedisSettings:
    """Connection settings. Picklable; the repr contains no secrets.

    assumed: whether no address was given. scan_keys: whether all keys are scanned to find queues.
    addresses: those that servers announce, and those to connect to instead.
    """

    url: str = field(repr=False)
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    timeout_ms: int = 30_000
    retry_ms: int = 20_000
    extra: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    assumed: bool = False
    scan_keys: bool = True
    addresses: tuple[tuple[Address, Address], ...] = ()
    where: str = field(init=False, default="")

    def __post_init__(self) -> None:
        check_url(self.url)
        for name in ("username", "password"):
            _check_secret(name, getattr(self, name))
        object.__setattr__(self, "where", without_secrets(self.url))


def settings_of(options: Options) -> RedisSettings:
    """Returns the connection settings: `url` or `shardUrls`, else $SPARK_BULL_URL, else host and port.

    The password is that of the option, else that in the URL, else $SPARK_BULL_PASSWORD. Raises OptionError for an
    option that conflicts with a URL.
    """
    url, source = options["url"], "`url`"
    if options["shardUrls"] is not None:
        url, source = options["shardUrls"], "`shardUrls`"
    assumed = not {"url", "shardUrls", "host", "port"} & options.given
    if url is None and assumed:
        url, source = os.environ.get(URL_VARIABLE) or None, f"${URL_VARIABLE}"
        assumed = url is None
    if url is None:
        scheme = "rediss" if options["ssl"] else "redis"
        url = f"{scheme}://{options['host']}:{options['port']}/{options['db']}"
    else:
        _check_beside_url(options, source)
    password = options["password"] or None
    if password is None and "password" not in options.given and not _has_password(url):
        password = os.environ.get(PASSWORD_VARIABLE) or None
    extra = tuple(sorted(options.redis.items()))
    return RedisSettings(
        url,
        options["username"],
        password,
        options["callTimeoutMs"],
        options["retryMs"],
        extra,
        assumed,
        options["scanKeys"],
        _addresses_of(options),
    )


def _addresses_of(options: Options) -> tuple[tuple[Address, Address], ...]:
    if options["addressMap"] is not None:
        found: tuple[tuple[Address, Address], ...] = options["addressMap"]
        return found
    return addresses(f"${ADDRESS_MAP_VARIABLE}", os.environ.get(ADDRESS_MAP_VARIABLE, ""))


#: Options that require host and port, and how to specify them in a URL.
_IN_URL: Final = {
    "db": "put the database into the URL, as in redis://localhost:6379/2 or unix:///run/redis.sock?db=2",
    "ssl": "use rediss:// in the URL for TLS, redis:// for no TLS",
}


def _check_beside_url(options: Options, source: str) -> None:
    for name, cure in _IN_URL.items():
        if name in options.given:
            raise OptionError(f"expected no option `{name}` together with {source}, which specifies it: {cure}")


def _has_password(url: str) -> bool:
    parts = [urlsplit(one) for one in urls_of(url)]
    return any(one.password or parse_qs(one.query).get("password") for one in parts)


def resolved(options: Options) -> Options:
    """Adds the values of environment variables, which other processes, such as executors, may not have."""
    settings = settings_of(options)
    values = {**options.values, "url": settings.url, "shardUrls": None, "password": settings.password}
    values["addressMap"] = settings.addresses
    # The URL now includes host, port, db and ssl, and the password is final, even if there is none.
    given = (options.given - {"host", "port", "shardUrls", *_IN_URL}) | {"password"}
    return replace(options, values=values, given=given if settings.assumed else given | {"url"})


def _check_secret(name: str, value: str | None) -> None:
    """Raises OptionError, without the value, for a text that UTF-8 can't encode."""
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        raise OptionError(f"expected `{name}` to be {ENCODABLE}, got another one, which is not shown") from None
