"""Checks URLs of Redis, and shows them without secrets."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from spark_bull.errors import ENCODABLE, OptionError, expected


def check_url(url: str) -> None:
    """Raises OptionError unless redis-py accepts `url`. The message contains no password."""
    try:
        url.encode()
    except UnicodeEncodeError:
        raise expected("url", ENCODABLE, masked(url)) from None
    scheme = url.partition("://")[0] if "://" in url else "none"
    if scheme not in ("redis", "rediss", "unix"):
        raise OptionError(f"expected `url` to start with redis://, rediss:// or unix://, got: {masked(url)!r}")
    try:
        parts = urlsplit(url)
        is_valid = scheme == "unix" or (
            parts.port != 0 and not parts.fragment and re.fullmatch("(/[0-9]*)?", parts.path)
        )
    except ValueError:
        is_valid = False
    if not is_valid or "@" in parts.query:
        raise OptionError(
            f"expected `url` to be {scheme}://[user[:password]@]host[:port][/database], got: {masked(url)!r}: "
            "percent-encode a password with one of / ? # @ : [ ], or pass it as `password`"
        )


def masked(url: str) -> str:
    """Masks what is, or may be, a secret in a URL, which may be invalid."""
    scheme, separator, rest = url.rpartition("://")
    _, at, place = rest.rpartition("@")
    place, question, query = place.partition("?")
    if scheme != "unix":
        # A non-numeric port may be a password without a host.
        place = re.sub(r"(^|[^:\[]):(?![\d/]*(?:/|$))[^\]/]*(?=/|$)", r"\1:***", place)
    hidden = question and "password" in query.lower()
    return f"{scheme}{separator}{'***@' if at else ''}{place}{question}{'***' if hidden else query}"
