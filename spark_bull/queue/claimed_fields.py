"""The fields of claimed jobs: raw texts as the scripts give them become what a worker needs.

A job whose attempts or options can't be read is not run: it fails with a reason that names the field. Other fields that
are not what they should be count as not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from spark_bull.columns import converted, listed
from spark_bull.dialects.base import Dialect
from spark_bull.job_json import damaged_field, parsed_opts
from spark_bull.outcomes import CLAIMED_COLUMNS

#: Counters are INT columns of DataFrames.
_MAX_COUNT: Final = 2**31 - 1
_MAX_NUMBER: Final = 2**53
#: The last ms of the year 9999, beyond which neither Spark nor Python prints a time.
_LAST_MS: Final = 253_402_300_799_999


def claimed_columns(dialect: Dialect, ids: Sequence[str], columns: Sequence[Any]) -> dict[str, Any]:
    """Columns of claimed jobs by name; each is a list, or one value for all. Numbers are int, None stands for none.

    `deferred_failure` of a damaged job says which field is wrong.
    """
    raw = dict(zip(CLAIMED_COLUMNS, columns, strict=False))
    made = {name: converted(column, _CONVERTERS.get(name, _text)) for name, column in raw.items()}
    damage = _damage(dialect, ids, raw)
    if damage:
        deferred = listed(made["deferred_failure"], len(ids))
        made["deferred_failure"] = [reason or damage.get(place) for place, reason in enumerate(deferred)]
    return made


def are_there(columns: Sequence[Any], count: int) -> list[bool]:
    """Which of the jobs exist: what is left of a removed one has neither timestamp nor data."""
    raw = dict(zip(CLAIMED_COLUMNS, columns, strict=False))
    pairs = zip(listed(raw["timestamp"], count), listed(raw["data"], count), strict=True)
    return [timestamp is not False or data is not False for timestamp, data in pairs]


def _damage(dialect: Dialect, ids: Sequence[str], raw: Mapping[str, Any]) -> dict[int, str]:
    """By place: why jobs can't run."""
    found: dict[int, str] = {}
    for place in _places(raw["attempts_made"], len(ids), lambda text: _number(text, _MAX_COUNT) is not None):
        got = listed(raw["attempts_made"], len(ids))[place]
        found[place] = damaged_field(dialect.attempts_field, ids[place], "a whole number", got)
    for place in _places(raw["opts"], len(ids), lambda text: parsed_opts(text) is not None):
        got = listed(raw["opts"], len(ids))[place]
        found[place] = damaged_field("opts", ids[place], "a JSON object", got)
    return found


def _places(column: Any, count: int, is_sound: Callable[[str], bool]) -> list[int]:
    """Where a column holds a text that is not sound."""
    if not isinstance(column, list):
        return [] if not column or is_sound(column) else list(range(count))
    return [place for place, text in enumerate(column) if text and not is_sound(text)]


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
