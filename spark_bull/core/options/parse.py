"""Parses options by their table.

Names are case-insensitive (Spark converts them to lower case), values are case-sensitive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from spark_bull.core.errors import OptionError, did_you_mean
from spark_bull.core.options.table import PYTHON_SCOPES, SCOPE_TITLES, TABLE, WORK
from spark_bull.core.options.urls import check_url

#: Keys that Spark adds to the options of a source.
SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname"})
REDIS_PREFIX: Final = "redis."
#: Options that can have secrets.
_NOT_SHOWN: Final = frozenset({"password", "url", "shardUrls", "resultPath", "offloadTo"})
#: Settings of redis-py that the URL, or an option, has.
_OWNED_REDIS_SETTINGS: Final = frozenset(
    {"url", "host", "port", "db", "username", "password", "decode_responses", "connection_pool"}
)


def spelled(name: str, scope: str) -> str:
    """Returns the spelling of an option in a scope: `chunkSize`, and `chunk_size` in Python."""
    if scope not in PYTHON_SCOPES:
        return name
    return re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", name)


#: The rows by lower-case name and scope. A name may have different rows in different scopes.
_ROWS: Final = {(spelled(row.name, scope).lower(), scope): row for row in TABLE for scope in row.scopes}


def shown_in(scope: str, text: str) -> str:
    """Returns a text with the names of options, `chunkSize`, as the users of a scope spell them."""

    def respelled(quoted: re.Match[str]) -> str:
        name = spelled(quoted[1], scope)
        return f"`{name}`" if (name.lower(), scope) in _ROWS else quoted[0]

    return re.sub(r"`(\w+)`", respelled, text)


@dataclass(frozen=True, repr=False)
class Options:
    """Parsed options: `options["chunkSize"]`, in Python, too. given: names of the options that the user set."""

    values: Mapping[str, Any]
    given: frozenset[str]
    redis: Mapping[str, str]
    scope: str

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def spelled(self, name: str) -> str:
        """The name of an option as its user spells it."""
        return spelled(name, self.scope)

    def __repr__(self) -> str:
        return f"Options({ {name: self.values[name] for name in sorted(self.given - _NOT_SHOWN)} })"


def parse_options(raw: Mapping[str, str], scope: str) -> Options:
    """Parses the options of a scope.

    Raises OptionError for an unknown name (with the nearest known one), an option of another scope, and an invalid
    value.
    """
    given: dict[str, Any] = {}
    redis_settings: dict[str, str] = {}
    for name, value in raw.items():
        lowered = name.lower()
        if is_spark_option(lowered):
            continue
        if lowered.startswith(REDIS_PREFIX):
            setting = lowered[len(REDIS_PREFIX) :]
            if setting in _OWNED_REDIS_SETTINGS:
                raise OptionError(f"`{name}` cannot be passed to redis-py: use `url` or `password`")
            redis_settings[setting] = value
            continue
        option = _ROWS.get((lowered, scope))
        if option is None:
            raise unknown_option(name, scope)
        given[option.name] = option.parse(spelled(option.name, scope), value)
    values = {o.name: given.get(o.name, o.default_in(scope)) for o in TABLE if scope in o.scopes}
    _check_together(given, scope)
    return Options(values, frozenset(given), redis_settings, scope)


def is_spark_option(lowered: str) -> bool:
    """Whether Spark adds an option of this lower-case name to the options of a source."""
    return lowered in SPARK_OPTIONS


def scopes_of(name: str) -> frozenset[str]:
    """Returns the scopes that have an option of this name."""
    return frozenset(scope for lowered, scope in _ROWS if lowered == name.lower())


def unknown_option(name: str, *scopes: str) -> OptionError:
    """Creates the error for an unknown option, with the nearest option of the scopes."""
    if name.lower() == "path":
        return OptionError(
            "expected no path, as a queue has none: call save(), load() or start() without one, and name the queue by "
            "the option `queue`"
        )
    near = did_you_mean(name, (spelled(row.name, scope) for row in TABLE for scope in scopes if scope in row.scopes))
    same_name = [option for option in TABLE if option.name.lower() == name.lower()]
    if not same_name or any(set(scopes) & set(option.scopes) for option in same_name):
        return OptionError(f"unknown option `{name}`{near}")
    other = same_name[0]
    if other.name == "shards":
        near = ": give the name of one shard, such as mail{0}, as `queue`"
    return OptionError(
        f"option `{other.name}` is for {SCOPE_TITLES[other.scopes[0]]}, not for {SCOPE_TITLES[scopes[0]]}{near}"
    )


def parse_arguments(arguments: Mapping[str, Any], scope: str) -> Options:
    """Parses the options among the arguments of a Python function, and `redis`, settings of redis-py.

    None means not given. Raises OptionError as parse_options does.
    """
    options = {name: value for name, value in arguments.items() if name != "redis"}
    for name in options:
        if (name, scope) not in _ROWS:
            raise unknown_option(name, scope)
    return parse_options(as_texts(options) | _redis_options(arguments.get("redis")), scope)


def as_options(arguments: Mapping[str, Any], scope: str) -> dict[str, str]:
    """Converts the arguments of a Python function that a scope of Spark has, too, to its options: `retryMs`, …"""
    names = {spelled(row.name, WORK): row.name for row in TABLE if scope in row.scopes}
    options = {names[name]: value for name, value in arguments.items() if name in names}
    return as_texts(options) | _redis_options(arguments.get("redis"))


def _redis_options(redis: Mapping[str, str] | None) -> dict[str, str]:
    return {f"{REDIS_PREFIX}{name}": str(value) for name, value in (redis or {}).items()}


def as_texts(options: Mapping[str, Any]) -> dict[str, str]:
    """Converts keyword arguments to strings that options are parsed from; drops None. Raises OptionError."""
    return {name: _as_text(name, value) for name, value in options.items() if value is not None}


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, (bool, int, float, dict, list, tuple)):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(f"expected `{name}` to be a value that JSON can hold: {error}") from None


def _check_together(given: Mapping[str, Any], scope: str) -> None:
    if ("txnAppId" in given) != ("txnVersion" in given):
        missing = "txnVersion" if "txnAppId" in given else "txnAppId"
        raise OptionError(f"expected `txnAppId` and `txnVersion` together, got no `{missing}`")
    if "writeId" in given and "jobIds" in given:
        raise OptionError("expected one of `writeId` and `jobIds`, got both: leave one out")
    if "windowMs" in given and given.get("view") != "stats":
        raise OptionError(f"expected `windowMs` with `view=stats`, got: view={given.get('view', 'jobs')}; leave it out")
    if "whenFull" in given and "maxLength" not in given:
        when_full, max_length = spelled("whenFull", scope), spelled("maxLength", scope)
        raise OptionError(f"expected `{max_length}` with `{when_full}`, got none: leave `{when_full}` out")
    if "offloadAbove" in given and "offloadTo" not in given:
        to, above = spelled("offloadTo", scope), spelled("offloadAbove", scope)
        raise OptionError(f"expected `{to}` with `{above}`, got none: leave `{above}` out")
    if "replicaTimeoutMs" in given and "replicas" not in given:
        timeout = spelled("replicaTimeoutMs", scope)
        raise OptionError(f"expected `replicas` with `{timeout}`, got none: leave `{timeout}` out")
    if "maxLength" in given and "onFinish" in given:
        raise OptionError("expected one of `maxLength` and `onFinish`, got both: leave one out")
    _check_deduplication(given)
    _check_on_failure(given)
    limiter = given.get("limiter")
    if "group" in given and limiter is not None and limiter.group_key is not None:
        raise OptionError("expected one of `group` and a `limiter` with `groupKey`, got both: leave one out")
    if "shardUrls" in given and "url" in given:
        raise OptionError(f"expected one of `url` and `{spelled('shardUrls', scope)}`, got both: leave one out")
    if "shardBy" in given and "shards" not in given:
        raise OptionError("expected `shards` with `shardBy`, got none: leave `shardBy` out")
    for name in ("url", "shardUrls"):
        if name in given:
            check_url(given[name], spelled(name, scope))


def _check_on_failure(given: Mapping[str, Any]) -> None:
    if "onFinish" in given and given.get("sequenceBy"):
        raise OptionError("expected one of `onFinish` and `sequenceBy`, got both: a job has one parent")
    on_failure = given.get("onFailure")
    if on_failure is None or "onFinish" in given:
        return
    if given.get("sequenceBy") and on_failure not in ("ignore", "fail"):
        raise OptionError(f"expected `onFailure` to be ignore or fail with `sequenceBy`, got: {on_failure!r}")


def _check_deduplication(given: Mapping[str, Any]) -> None:
    rule = given.get("deduplication")
    has_id = rule is not None and (not isinstance(rule, Mapping) or "id" in rule)
    if has_id and "uniqueBy" in given:
        raise OptionError("expected one of `uniqueBy` and an id in `deduplication`, got both: leave one out")
