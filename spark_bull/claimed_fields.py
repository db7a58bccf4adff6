"""The fields of claimed jobs: raw texts as the scripts give them become what a worker needs.

A job whose attempts or options can't be read is not run: it fails with a reason that names the field. Other fields that
are not what they should be count as not given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from spark_bull.dialects.base import Dialect
from spark_bull.errors import JobDamaged
from spark_bull.outcomes import CLAIMED_COLUMNS

#: Counters are INT columns of DataFrames.
_MAX_COUNT: Final = 2**31 - 1
_MAX_NUMBER: Final = 2**53
#: The last ms of the year 9999, beyond which neither Spark nor Python prints a time.
_LAST_MS: Final = 253_402_300_799_999
#: How much of a damaged field a reason shows, in characters.
_SHOWN: Final = 200


def claimed_columns(dialect: Dialect, ids: Sequence[str], columns: Sequence[Any]) -> dict[str, Any]:
    """Columns of claimed jobs by name; each is a list, or one value for all. Numbers are int, None stands for none.

    `deferred_failure` of a damaged job says which field is wrong.
    """
    raw = dict(zip(CLAIMED_COLUMNS, columns, strict=False))
    made = {name: _converted(column, _CONVERTERS.get(name, _text)) for name, column in raw.items()}
    damage = _damage(dialect, ids, raw)
    if damage:
        deferred = _listed(made["deferred_failure"], len(ids))
        made["deferred_failure"] = [reason or damage.get(place) for place, reason in enumerate(deferred)]
    return made


def are_there(columns: Sequence[Any], count: int) -> list[bool]:
    """Which of the jobs exist: what is left of a removed one has neither timestamp nor data."""
    raw = dict(zip(CLAIMED_COLUMNS, columns, strict=False))
    pairs = zip(_listed(raw["timestamp"], count), _listed(raw["data"], count), strict=True)
    return [timestamp is not False or data is not False for timestamp, data in pairs]


def damaged_field(name: str, job_id: str, what: str, got: Any) -> str:
    """Why a job with such a field can't run."""
    shown = "nothing" if got is None or got is False else repr(got[:_SHOWN])
    return f"expected `{name}` of job {job_id} to be {what}, got: {shown}"


@lru_cache(maxsize=4096)
def parsed_opts(text: str) -> Mapping[str, Any] | None:
    """A job's options; None when they are no JSON object. An empty text is an empty object, as in Node."""
    try:
        parsed = _JSON.decode(text or "{}")
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def payload_of(job_id: str, data: str, opts: str = "{}") -> Any:
    """A job's payload, parsed; as it stands if its options say so (Bull's `preventParsingData`). Raises JobDamaged."""
    if "preventParsingData" in opts and (parsed_opts(opts) or {}).get("preventParsingData") is True:
        return data
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JobDamaged(damaged_field("data", job_id, f"JSON ({error})", data or None)) from None


def json_or_text(text: str | None) -> Any:
    """The value that a text stands for, or the text when it is no JSON; None for none."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


#: NaN and Infinity are no JSON, though Python reads them.
_JSON: Final = json.JSONDecoder(parse_constant=_refused)


def _damage(dialect: Dialect, ids: Sequence[str], raw: Mapping[str, Any]) -> dict[int, str]:
    """By place: why jobs can't run."""
    found: dict[int, str] = {}
    for place in _places(raw["attempts_made"], len(ids), lambda text: _number(text, _MAX_COUNT) is not None):
        got = _listed(raw["attempts_made"], len(ids))[place]
        found[place] = damaged_field(dialect.attempts_field, ids[place], "a whole number", got)
    for place in _places(raw["opts"], len(ids), lambda text: parsed_opts(text) is not None):
        got = _listed(raw["opts"], len(ids))[place]
        found[place] = damaged_field("opts", ids[place], "a JSON object", got)
    return found


def _places(column: Any, count: int, is_sound: Callable[[str], bool]) -> list[int]:
    """Where a column holds a text that is not sound."""
    if not isinstance(column, list):
        return [] if not column or is_sound(column) else list(range(count))
    return [place for place, text in enumerate(column) if text and not is_sound(text)]


def _listed(column: Any, count: int) -> list[Any]:
    return column if isinstance(column, list) else [column] * count


def _converted(column: Any, convert: Callable[[Any], Any]) -> Any:
    return [convert(value) for value in column] if isinstance(column, list) else convert(column)


def _text(value: Any) -> str | None:
    return None if value is False else value


def _number(text: Any, most: int) -> int | None:
    """The whole number from 0 to `most` that a text is; None for another text."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if 0 <= number <= most else None


def _to_number(most: int, missing: int | None) -> Callable[[Any], int | None]:
    def convert(text: Any) -> int | None:
        number = _number(text, most) if text else None
        return missing if number is None else number

    return convert


_CONVERTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "timestamp": _to_number(_LAST_MS, 0),
    "attempts_started": _to_number(_MAX_COUNT, 0),
    "attempts_made": _to_number(_MAX_COUNT, 0),
    "stalled_counter": _to_number(_MAX_COUNT, 0),
    "priority": _to_number(_MAX_NUMBER, 0),
    "attempts": _to_number(_MAX_COUNT, None),
}
