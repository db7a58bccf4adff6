"""The fields of claimed jobs: raw texts of the scripts become the values that a worker needs.

A job with unreadable `attemptsMade` or `opts` is not run: it fails with a reason that names the field. Another field
that can't be parsed counts as not given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.encode.chunks import converted, listed
from spark_bull.core.dialects.fields import CLAIMED_FIELDS, stalls_of
from spark_bull.core.model.javascript import LARGEST, whole_in
from spark_bull.core.model.job_json import damaged_field, parsed_opts
from spark_bull.core.model.outcomes import ClaimedJob

#: The largest number of each kind. Counts are INT columns of DataFrames; neither Spark nor Python prints a time after
#: the year 9999.
_LARGEST: Final = {"count": 2**31 - 1, "stalls": 2**31 - 1, "number": LARGEST, "time": 253_402_300_799_999}


#: ClaimedJob._make, in two thirds of its time.
_NEW: Final = partial(tuple.__new__, ClaimedJob)


class ClaimedChunk(NamedTuple):
    """Some claimed jobs. `columns`: raw texts by hash field, a list or one value for all jobs, False for none."""

    ids: Sequence[str]
    columns: Mapping[str, Any]

    def are_there(self) -> list[bool]:
        """Which of the jobs exist. A claim has given a deferred failure to what is left of a removed one."""
        signs = [self._listed(name) for name in ("timestamp", "data", "defa") if name in self.columns]
        return [any(sign is not False for sign in of_job) for of_job in zip(*signs, strict=True)]

    def without(self, job_ids: Collection[str]) -> ClaimedChunk:
        """The jobs without these."""
        kept = [place for place, job_id in enumerate(self.ids) if job_id not in job_ids]
        columns = {
            name: [column[place] for place in kept] if isinstance(column, list) else column
            for name, column in self.columns.items()
        }
        return ClaimedChunk([self.ids[place] for place in kept], columns)

    def values(self, dialect: Dialect) -> dict[str, Any]:
        """Columns by attribute of ClaimedJob; each is a list, or one value for all jobs. Numbers are int.

        None where a job lacks a text, the default where the dialect lacks the field. `deferred_failure` of a damaged
        job says which field is wrong.
        """
        names = dialect.claim_fields
        made = {
            attribute: _converted(self.columns[names[attribute]], convert)
            if attribute in names
            else ClaimedJob._field_defaults[attribute]
            for attribute, convert in _CONVERTERS.items()
        }
        damage = self._damage(dialect)
        if damage:
            deferred = listed(made["deferred_failure"], len(self.ids))
            made["deferred_failure"] = [reason or damage.get(place) for place, reason in enumerate(deferred)]
        return made

    def jobs(self, dialect: Dialect) -> list[ClaimedJob]:
        """The jobs as objects."""
        if not self.ids or not self.columns:
            return []
        made = self.values(dialect)
        made["data"] = _filled(made["data"], "")
        made["opts"] = _filled(made["opts"], "{}")
        count = len(self.ids)
        columns = (listed(made[name], count) for name in ClaimedJob._field_defaults)
        return list(map(_NEW, zip(self.ids, *columns, strict=True)))

    def _listed(self, field: str) -> list[Any]:
        return listed(self.columns[field], len(self.ids))

    def _damage(self, dialect: Dialect) -> dict[int, str]:
        """Why jobs can't run, by place."""
        found: dict[int, str] = {}
        attempts, opts = dialect.claim_fields["attempts_made"], dialect.claim_fields["opts"]
        for field, column, what, is_sound in (
            (attempts, self.columns[attempts], "a whole number", _is_count),
            (opts, _without_ids(self.columns[opts], self.ids), "a JSON object", _is_object),
        ):
            for place in _unsound_places(column, len(self.ids), is_sound):
                found[place] = damaged_field(field, self.ids[place], what, self._listed(field)[place])
        return found


def _unsound_places(column: Any, count: int, is_sound: Callable[[str], bool]) -> list[int]:
    """Where a column holds a text that is not sound. Equal texts are checked once."""
    texts = column if isinstance(column, list) else [column]
    unsound = {text for text in set(texts) if text and not is_sound(text)}
    return [place for place, text in enumerate(listed(column, count)) if text in unsound] if unsound else []


def _without_ids(column: Any, ids: Sequence[str]) -> Any:
    """Options with an empty id in place of the job's own, so that most are equal. They are JSON if these are."""
    if not isinstance(column, list):
        return column
    pairs = zip(column, ids, strict=True)
    return [text and text.replace(f'"jobId":{encode_basestring(job_id)}', '"jobId":""') for text, job_id in pairs]


def _filled(column: Any, default: str) -> Any:
    """The column with a text in place of those that are empty or missing."""
    return [text or default for text in column] if isinstance(column, list) else column or default


def _is_count(text: str) -> bool:
    return _number(text, _LARGEST["count"]) is not None


def _is_object(text: str) -> bool:
    return parsed_opts(text) is not None


def _converted(column: Any, convert: Callable[[Any], Any] | None) -> Any:
    """The column with `convert` applied to its values; None: they are texts."""
    if convert is not None:
        return converted(column, convert)
    if isinstance(column, list):
        return [None if text is False else text for text in column]
    return None if column is False else column


def _number(text: Any, largest: int) -> int | None:
    """The whole number from 0 to `largest` at the start of a text; None for another text."""
    number = whole_in(text)
    return number if number is not None and 0 <= number <= largest else None


def _to_number(largest: int, missing: int | None) -> Callable[[Any], int | None]:
    def convert(text: Any) -> int | None:
        number = _number(text, largest) if text else None
        return missing if number is None else number

    return convert


def _to_stalls(text: Any) -> int:
    counter = _number(text, _LARGEST["stalls"]) if text else None
    return stalls_of(counter or 0)


#: By attribute of ClaimedJob; None: texts, which are converted together.
_CONVERTERS: Final[Mapping[str, Callable[[Any], Any] | None]] = {
    field.claimed: (
        _to_stalls
        if field.kind == "stalls"
        else _to_number(_LARGEST[field.kind], ClaimedJob._field_defaults[field.claimed])
        if field.kind in _LARGEST
        else None
    )
    for field in CLAIMED_FIELDS.values()
}
