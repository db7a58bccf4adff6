"""Parsers of the values of options, which are texts. `encryptWith` says where keys of payloads are, and has none
itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from spark_bull.core.clock import moment_of, ms_of
from spark_bull.core.errors import OptionError, did_you_mean, encodable, expected
from spark_bull.core.model.jobs import STATES
from spark_bull.core.model.limits import SlotRange

#: The value of an option that is to be read from Redis.
AUTO: Final = "auto"
#: Where a stream starts.
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
MAX_SHARDS: Final = 1_024

#: Units of sizes, as in the command.
_UNITS: Final = {"b": 1, "kb": 1_000, "mb": 1_000_000, "gb": 1_000_000_000}

#: Host and port; None: any port, or the same one.
Address = tuple[str, int | None]
#: Addresses that servers announce, and those to connect to instead.
AddressPairs = tuple[tuple[Address, Address], ...]

#: parser(name, text) -> value; raises OptionError.
Parser = Callable[[str, str], Any]


def text(name: str, value: str) -> str:
    return encodable(name, value)


def secret(_name: str, value: str) -> str:
    """Takes a text that no error may show; the settings of the connection check it."""
    return value


def secrets(name: str, value: str) -> str:
    """Takes texts that no error may show, as JSON or with spaces or commas between them; returns them with spaces."""
    if not value.startswith("["):
        return value
    try:
        return " ".join(json.loads(value))
    except (ValueError, TypeError, RecursionError):
        raise OptionError(f"expected `{name}` to be a list of texts, got something else, which is not shown") from None


def addresses(name: str, value: str) -> AddressPairs:
    """Parses pairs of addresses, as `a:1=b:2, c=d` or as JSON."""
    what = "addresses and those to connect to instead, such as 10.0.0.5:6379=127.0.0.1:7001, redis-2=localhost"
    try:
        given = json.loads(value).items() if value.lstrip().startswith("{") else _pairs(value)
        return tuple((_address(announced), _address(used)) for announced, used in given)
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise expected(name, what, value) from None


def _pairs(value: str) -> list[list[str]]:
    return [part.split("=") for part in value.split(",") if part.strip()]


def _address(text: str) -> Address:
    place = text.strip().encode().decode()
    parts = urlsplit(f"//{place}")
    if not parts.hostname or parts.netloc != place or "@" in place or parts.port == 0:
        raise ValueError(text)
    return parts.hostname, parts.port


def shards(name: str, value: str) -> int | str:
    """Parses a number of shards, or `auto`."""
    return value if value == AUTO else integer(1, MAX_SHARDS)(name, value)


def flag(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in ("true", "1", "yes"):
        return True
    if lowered in ("false", "0", "no"):
        return False
    raise expected(name, "true or false", value)


def integer(low: int, high: int | None = None) -> Parser:
    if high is not None:
        what = f"an integer from {low:,} to {high:,}"
    else:
        what = {0: "an integer >= 0", 1: "a positive integer"}.get(low, f"an integer >= {low:,}")

    def parse(name: str, value: str) -> int:
        try:
            number = int(value.strip())
        except ValueError:
            raise expected(name, what, value) from None
        if number < low or (high is not None and number > high):
            raise expected(name, what, value)
        return number

    return parse


def size(name: str, value: str) -> int:
    """Parses a number of bytes, such as 65536, `64kb` or `1mb`."""
    found = re.fullmatch(r"(\d{1,12})\s*(b|kb|mb|gb)?", value.strip().lower())
    if found is None:
        raise expected(name, "a number of bytes, such as 65536, 64kb or 1mb", value)
    return int(found[1]) * _UNITS[found[2] or "b"]


def positive(name: str, value: str) -> float:
    try:
        found = float(value.strip())
    except ValueError:
        found = 0
    if not 0 < found < inf:
        raise expected(name, "a number > 0", value)
    return found


def slots(name: str, value: str) -> int | SlotRange:
    """Parses a number of slots, or the least and the largest one: `1-40`, or `[1, 40]`."""
    match = re.fullmatch(r"\[?\s*(\d{1,12})(?:\s*[-,]\s*(\d{1,12}))?\s*\]?", value.strip())
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 <= least <= most or most == 0:
        raise expected(name, "a positive integer, or the least and the largest number, such as (1, 40)", value)
    return least if match and match[2] is None else SlotRange(least, most)


def choice(*choices: str) -> Parser:
    def parse(name: str, value: str) -> str:
        lowered = value.strip().lower()
        if lowered not in choices:
            raise OptionError(
                f"expected `{name}` to be one of {', '.join(choices)}, got: {value!r}{did_you_mean(lowered, choices)}"
            )
        return lowered

    return parse


def names(name: str, value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in encodable(name, value).split(",") if part.strip())


def states(name: str, value: str) -> tuple[str, ...]:
    found = names(name, value)
    for state in found:
        if state not in STATES:
            hint = did_you_mean(state, STATES)
            raise OptionError(f"expected `{name}` to list some of {', '.join(STATES)}, got: {state!r}{hint}")
    return found


def instant(name: str, value: str) -> int:
    """Parses ISO 8601 (UTC if there is no offset) or ms since 1970; returns ms since 1970."""
    text = value.strip()
    try:
        if text.isdecimal():
            return int(text)
        moment = moment_of(text)
    except ValueError:
        raise expected(name, "an ISO 8601 time or ms since 1970", value) from None
    return ms_of(moment)


def start(name: str, value: str) -> str:
    """Parses where a stream starts: earliest, latest, or a time, which is returned as ms since 1970."""
    lowered = value.strip().lower()
    if lowered in (EARLIEST, LATEST):
        return lowered
    try:
        since = instant(name, value)
    except OptionError:
        raise expected(name, "earliest, latest, an ISO 8601 time or ms since 1970", value) from None
    return str(since) if since > 0 else EARLIEST


def json_object(name: str, value: str) -> dict[str, Any]:
    parsed = _json_or_none(value)
    if not isinstance(parsed, dict):
        raise expected(name, "a JSON object", value)
    return parsed


def priority(_name: str, value: str) -> int | str:
    """Parses a number; another text is a name, which is checked with the job."""
    try:
        return int(value)
    except ValueError:
        return value.strip().lower()


def trace_context(name: str, value: str) -> str:
    """Checks the text, which is stored as it is; an empty object is nothing to store."""
    return encodable(name, value) if json_object(name, value) else ""


def backoff(name: str, value: str) -> int | dict[str, Any]:
    """Parses ms or a JSON object, whose members are checked with the job."""
    parsed = _json_or_none(value)
    if isinstance(parsed, (int, dict)) and not (isinstance(parsed, bool) and parsed):
        return parsed
    raise expected(name, "ms, or a JSON object with type and delay", value)


def deduplication(_name: str, value: str) -> str | dict[str, Any]:
    """Parses an id or a JSON object, whose members are checked with the job."""
    parsed = _json_or_none(value)
    return parsed if isinstance(parsed, dict) else value


def retry_rules(name: str, value: str) -> dict[str, int]:
    """Parses a JSON object: the maximum attempts by the name of an error's class."""
    rules = _json_or_none(value)
    if (
        not isinstance(rules, dict)
        or not all(map(str.isidentifier, rules))
        or not all(map(_is_attempts, rules.values()))
    ):
        raise expected(name, 'names of error classes with numbers of attempts, such as {"TimeoutError": 5}', value)
    return rules


def _is_attempts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


KEEP_RULE: Final = "true, false, a count, or an object with age (s) and count"


def keep(name: str, value: str) -> Any:
    """Parses the rule how many finished jobs are kept: true keeps none, false all, a number is the count to keep."""
    lowered = value.strip().lower()
    parsed = lowered == "true" if lowered in ("true", "false") else _json_or_none(value)
    if parsed is None:
        raise expected(name, KEEP_RULE, value)
    check_keep(name, parsed)
    return parsed


def check_keep(name: str, value: object) -> None:
    """Raises OptionError for an invalid rule how many jobs to keep. -1 keeps all, as in the Node libraries."""
    if isinstance(value, Mapping):
        numbers = [number for key, number in value.items() if key in ("age", "count", "limit")]
        is_valid = bool(numbers) and len(numbers) == len(value) and all(map(_is_count, numbers))
    else:
        is_valid = isinstance(value, bool) or _is_count(value)
    if not is_valid:
        raise expected(name, KEEP_RULE, value)


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= -1


def _json_or_none(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


#: Parser of `mode`.
choose_mode: Final = choice("claim", "settle", "schedule", "manage", "limits")


_SOURCE: Final = re.compile(r"([A-Za-z0-9_.-]{1,64})=(env|file):(\S+)")


class KeySource(NamedTuple):
    """kid: id of the key, which sealed payloads name. where: name of an environment variable, or path of a file."""

    kid: str
    kind: Literal["env", "file"]
    where: str


def key_sources(name: str, value: str) -> tuple[KeySource, ...]:
    """Parses `a=env:NAME,b=file:/path`, also as a JSON list of texts. Raises OptionError, which shows no value: it may
    be a key.
    """
    sources, given = [], _json_or_none(value)
    if not isinstance(given, list):
        given = re.split(r"[,\s]+", value.strip()) if value.strip() else []
    for part in map(str, given):
        found = _SOURCE.fullmatch(part)
        if found is None:
            raise OptionError(
                f"expected `{name}` to list ids of keys and where they are, such as 'b=file:/run/secrets/mail' or "
                "'b=file:/run/secrets/mail,a=env:MAIL_SECRET', got something else, which is not shown; a key itself is "
                "no option"
            )
        sources.append(KeySource(found[1], "env" if found[2] == "env" else "file", found[3]))
    kids = [source.kid for source in sources]
    if not kids or len(set(kids)) < len(kids):
        raise OptionError(f"expected `{name}` to list keys with different ids, got: {', '.join(kids) or 'none'}")
    return tuple(sources)
