"""Parses options by their table.

Names are case-insensitive (Spark converts them to lower case), values are case-sensitive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from spark_bull.core.errors import OptionError, did_you_mean
from spark_bull.core.options.parts import Options, options_in
from spark_bull.core.options.redis_settings import check_url, redis_settings
from spark_bull.core.options.table import SCOPES

#: Keys that Spark adds to the options of a source.
SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname"})
REDIS_PREFIX: Final = "redis."
#: Settings of redis-py that the URL, or an option, has.
_OWNED_REDIS_SETTINGS: Final = frozenset(
    {"url", "host", "port", "db", "username", "password", "decode_responses", "connection_pool"}
)
#: Options without effect -> what they need.
_NEEDED: Final = {
    "whenFull": "maxLength",
    "offloadAbove": "offloadTo",
    "replicaTimeoutMs": "replicas",
    "shardBy": "shards",
}
#: Options of which one may be given.
_ALTERNATIVES: Final = (("writeId", "jobIds"), ("maxLength", "onFinish"), ("url", "shardUrls"))

S = TypeVar("S", bound=Options)


def shown_in(scope: type[Options], text: str) -> str:
    """Returns a text with the names of options, `chunkSize`, as the users of a scope spell them."""

    def respelled(quoted: re.Match[str]) -> str:
        name = scope.spelled(quoted[1])
        return f"`{name}`" if name.lower() in options_in(scope) else quoted[0]

    return re.sub(r"`(\w+)`", respelled, text)


def parse_options(raw: Mapping[str, str], scope: type[S]) -> S:
    """Parses the options of a scope.

    Raises OptionError for an unknown name (with the nearest known one), an option of another scope, and an invalid
    value.
    """
    rows, given, redis = options_in(scope), {}, {}
    for name, value in raw.items():
        lowered = name.lower()
        if lowered.startswith(REDIS_PREFIX):
            setting = lowered.removeprefix(REDIS_PREFIX)
            if setting in _OWNED_REDIS_SETTINGS:
                raise OptionError(f"`{name}` cannot be passed to redis-py: use `url` or `password`")
            redis[setting] = value
        elif not is_spark_option(lowered):
            if lowered not in rows:
                raise unknown_option(name, scope)
            row = rows[lowered]
            given[row.name] = row.parse(scope.spelled(row.name), value)
    _check_together(given, scope)
    parsed = {row.attribute: given.get(row.name, row.default) for row in rows.values()}
    for kind in ("jobs", "events"):
        least, most = parsed.get(f"min_{kind}_per_trigger"), parsed.get(f"max_{kind}_per_trigger")
        if least is not None and most is not None and least > most:
            names = (f"{end}{kind.capitalize()}PerTrigger" for end in ("min", "max"))
            raise OptionError("expected `{}` to be at most `{}` ({:,}), got: {:,}".format(*names, most, least))
    return scope(frozenset(given), redis_settings(parsed, redis), parsed)


def is_spark_option(lowered: str) -> bool:
    """Whether Spark adds an option of this lower-case name to the options of a source."""
    return lowered in SPARK_OPTIONS


def scopes_of(name: str) -> list[type[Options]]:
    """Returns the scopes that have an option of this name, as users spell it."""
    return [scope for scope in SCOPES if name.lower() in options_in(scope)]


def unknown_option(name: str, *scopes: type[Options]) -> OptionError:
    """Creates the error for an unknown option, with the nearest option of the scopes."""
    if name.lower() == "path":
        return OptionError(
            "expected no path, as a queue has none: call save(), load() or start() without one, and name the queue by "
            "the option `queue`"
        )
    near = did_you_mean(name, (scope.spelled(row.name) for scope in scopes for row in options_in(scope).values()))
    known = {scope: row for scope in SCOPES for row in options_in(scope).values() if row.name.lower() == name.lower()}
    if not known or known.keys() & set(scopes):
        return OptionError(f"unknown option `{name}`{near}")
    other, row = next(iter(known.items()))
    if row.name == "shards":
        near = ": give the name of one shard, such as mail{0}, as `queue`"
    return OptionError(f"option `{row.name}` is for {other.title}, not for {scopes[0].title}{near}")


def parse_arguments(arguments: Mapping[str, Any], scope: type[S]) -> S:
    """Parses the options among the arguments of a Python function, and `redis`, settings of redis-py.

    None means not given. Raises OptionError as parse_options does.
    """
    options = {name: value for name, value in arguments.items() if name != "redis"}
    for name in options:
        if name not in options_in(scope):
            raise unknown_option(name, scope)
    redis = {f"{REDIS_PREFIX}{name}": str(value) for name, value in (arguments.get("redis") or {}).items()}
    return parse_options(as_texts(options) | redis, scope)


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


def _check_together(given: Mapping[str, Any], scope: type[Options]) -> None:
    if ("txnAppId" in given) != ("txnVersion" in given):
        missing = "txnVersion" if "txnAppId" in given else "txnAppId"
        raise OptionError(f"expected `txnAppId` and `txnVersion` together, got no `{missing}`")
    for name, needed in _NEEDED.items():
        if name in given and needed not in given:
            own = scope.spelled(name)
            raise OptionError(f"expected `{scope.spelled(needed)}` with `{own}`, got none: leave `{own}` out")
    for pair in _ALTERNATIVES:
        if given.keys() >= set(pair):
            one, other = map(scope.spelled, pair)
            raise OptionError(f"expected one of `{one}` and `{other}`, got both: leave one out")
    if "windowMs" in given and given.get("view") != "stats":
        raise OptionError(f"expected `windowMs` with `view=stats`, got: view={given.get('view', 'jobs')}; leave it out")
    rule, limiter = given.get("deduplication"), given.get("limiter")
    if "uniqueBy" in given and rule is not None and (not isinstance(rule, Mapping) or "id" in rule):
        raise OptionError("expected one of `uniqueBy` and an id in `deduplication`, got both: leave one out")
    if "group" in given and limiter is not None and limiter.group_key is not None:
        raise OptionError("expected one of `group` and a `limiter` with `groupKey`, got both: leave one out")
    if given.get("sequenceBy"):
        if "onFinish" in given:
            raise OptionError("expected one of `onFinish` and `sequenceBy`, got both: a job has one parent")
        policy = given.get("onFailure")
        if policy not in (None, "ignore", "fail"):
            raise OptionError(f"expected `onFailure` to be ignore or fail with `sequenceBy`, got: {policy!r}")
    for name in ("url", "shardUrls"):
        if name in given:
            check_url(given[name], scope.spelled(name))
