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
    addresses: tuple[tuple[Address, Address], ...] = ()
    where: str = field(init=False, default="")

    def __post_init__(self) -> None:
        check_url(self.url)
        _check_password(self.password)
        object.__setattr__(self, "where", without_secrets(self.url))


def settings_of(options: Options) -> RedisSettings:
    """Returns the connection settings: `url` or `shardUrls`, else $SPARK_BULL_URL, else localhost.

    The password is that of the option, else that in the URL, else $SPARK_BULL_PASSWORD. Raises OptionError for a bad
    URL of the environment.
    """
    url = options["shardUrls"] or options["url"]
    assumed = not {"url", "shardUrls"} & options.given
    if url is None:
        url = os.environ.get(URL_VARIABLE) or None
        assumed = url is None
    url = url or _DEFAULT_URL
    password = options["password"] or None
    if password is None and "password" not in options.given and not _has_password(url):
        password = os.environ.get(PASSWORD_VARIABLE) or None
    extra = tuple(sorted(options.redis.items()))
    return RedisSettings(
        url,
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


def _has_password(url: str) -> bool:
    parts = [urlsplit(one) for one in urls_of(url)]
    return any(one.password or parse_qs(one.query).get("password") for one in parts)


def resolved(options: Options) -> Options:
    """Adds the values of environment variables, which other processes, such as executors, may not have."""
    settings = settings_of(options)
    values = {**options.values, "url": settings.url, "shardUrls": None, "password": settings.password}
    values["addressMap"] = settings.addresses
    # The password is final, even if there is none.
    given = options.given - {"shardUrls"} | {"password"}
    return replace(options, values=values, given=given if settings.assumed else given | {"url"})


def _check_password(password: str | None) -> None:
    """Raises OptionError, without the password, for one that UTF-8 can't encode."""
    try:
        (password or "").encode()
    except UnicodeEncodeError:
        raise OptionError(f"expected `password` to be {ENCODABLE}, got another one, which is not shown") from None
