"""The settings of a connection to Redis, by options and environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from spark_bull.core.errors import ENCODABLE, OptionError
from spark_bull.core.options.urls import check_url, urls_of, without_secrets
from spark_bull.core.options.values import AddressPairs, addresses

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
        _check_password(self.password)
        object.__setattr__(self, "where", without_secrets(self.url))


def redis_settings(options: Mapping[str, Any], extra: Mapping[str, str]) -> RedisSettings:
    """Returns the settings by options, by their names in Python, and further ones of redis-py.

    The URL is `url` or `shard_urls`, else $SPARK_BULL_URL, else localhost. The password comes from the option, else
    from the URL, else from $SPARK_BULL_PASSWORD. Other processes, such as executors, may not have these variables.
    Raises OptionError for a bad value of a variable.
    """
    given = options["shard_urls"] or options["url"] or os.environ.get(URL_VARIABLE)
    url, password, pairs = given or _DEFAULT_URL, options["password"], options["address_map"]
    if password is None and not _has_password(url):
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


def _has_password(url: str) -> bool:
    parts = [urlsplit(one) for one in urls_of(url)]
    return any(one.password or parse_qs(one.query).get("password") for one in parts)


def _check_password(password: str | None) -> None:
    """Raises OptionError, without the password, for one that UTF-8 can't encode."""
    try:
        (password or "").encode()
    except UnicodeEncodeError:
        raise OptionError(f"expected `password` to be {ENCODABLE}, got another one, which is not shown") from None
