"""Parses the JSON fields of a job's hash, and words the errors of damaged fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from math import isfinite
from typing import Any, Final, NoReturn

from spark_bull.core.errors import JobDamaged
from spark_bull.core.well_formed import well_formed_json

#: The option of a job whose payload is text, not JSON.
UNPARSED: Final = "preventParsingData"
#: Maximum characters of a damaged field in a message.
_MAX_SHOWN: Final = 200


def damaged_field(name: str, job_id: str, what: str, got: str | None) -> str:
    """Returns the message for a damaged field of a job's hash; None and '' are shown as `nothing`."""
    return f"expected `{name}` of job {job_id} to be {what}, got: {repr(got[:_MAX_SHOWN]) if got else 'nothing'}"


def payload_of(job_id: str, data: str, opts: str = "{}") -> Any:
    """Parses a job's payload, unless its options have Bull's `preventParsingData`. Raises JobDamaged."""
    if UNPARSED in opts and (parsed_opts(opts) or {}).get(UNPARSED) is True:
        return data
    try:
        value, end = _parse_start(data)
        if end == len(data):
            return value
    except (ValueError, RecursionError):
        pass
    # White space around the value, or an error.
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JobDamaged(damaged_field("data", job_id, f"JSON ({error})", data)) from None


def opts_of(job_id: str, opts: str) -> dict[str, Any]:
    """Parses a job's options, as stored by the Node library. Raises JobDamaged."""
    parsed = parsed_opts(opts)
    if parsed is None:
        raise JobDamaged(damaged_field("opts", job_id, "a JSON object", opts))
    return dict(parsed)


@lru_cache(maxsize=4096)
def parsed_opts(opts: str) -> Mapping[str, Any] | None:
    """Parses a job's options; None if they are not a JSON object. '' is an empty object, as in Node.

    Their texts are those that Node sends to Redis, such as the name of a key: see `well_formed`.
    """
    opts = well_formed_json(opts)
    try:
        # `decode` spends half of its time on white space around the object.
        parsed, end = _JSON.raw_decode(opts) if opts[:1] == "{" else (None, -1)
        if end != len(opts):
            parsed = _JSON.decode(opts or "{}")
    except RecursionError:
        return None
    except ValueError:
        parsed = _parsed_huge(opts)
    return parsed if isinstance(parsed, dict) else None


def _parsed_huge(text: str) -> Any:
    """Parses JSON with numbers of thousands of digits, which are infinite in JavaScript, and an error of Python."""
    try:
        return _HUGE_JSON.decode(text)
    except ValueError:
        return None


def json_or_text(text: str | None) -> Any:
    """Parses a text as JSON; returns the text if it is not JSON, and None for None.

    What it returns can be written as JSON again: a number such as 1e999, which is infinite in Python, remains a text.
    """
    if text is None:
        return None
    try:
        return _FINITE_JSON.decode(text)
    except (ValueError, RecursionError):
        return text


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _refused(text)


#: Parses the value at the start of a text. To look for white space around it, as json.loads does, takes half the time.
_parse_start: Final = json.JSONDecoder().raw_decode
#: Rejects NaN and Infinity, which are not JSON but accepted by Python.
_JSON: Final = json.JSONDecoder(parse_constant=_refused)
#: The value of a JSON text. Raises ValueError, and RecursionError for a text that is nested too deeply.
strict_json: Final = _JSON.decode
_HUGE_JSON: Final = json.JSONDecoder(parse_constant=_refused, parse_int=float)
_FINITE_JSON: Final = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)


def camel_case(name: str) -> str:
    """The name of a field in Node; fields `…_text`, which hold JSON, have the name of what it stands for."""
    first, *others = name.removesuffix("_text").split("_")
    return first + "".join(map(str.capitalize, others))


def in_camel_case(found: Any) -> dict[str, Any]:
    """The fields of a dataclass or named tuple."""
    names = getattr(found, "_fields", None) or [field.name for field in fields(found)]
    return {camel_case(name): getattr(found, name) for name in names}


def parsed(found: Any) -> dict[str, Any]:
    """The fields of a dataclass by its own names; those that hold JSON are parsed, and without `_text`."""
    given = {field.name: getattr(found, field.name) for field in fields(found)}
    texts = {name: given.pop(name) for name in list(given) if name.endswith("_text")}
    return given | {name.removesuffix("_text"): json_or_text(text) for name, text in texts.items()}
