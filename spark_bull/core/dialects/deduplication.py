"""Deduplication ids of jobs: BullMQ's option `deduplication`, and `debounce` of Bull 4.

A property `deduplication` is an id, or a mapping with an id and the rule for it. A default without an id is the rule of
the jobs that give an id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from spark_bull.core.dialects.features import lacks
from spark_bull.core.errors import DialectError, OptionError, did_you_mean, encodable, expected

DEDUPLICATION: Final = "deduplication"
#: Mark in a job's options text that a script replaces by the deduplication id; see `base.MARKS`.
ID_MARK: Final = "\x04"
_EXPECTED: Final = "an id, or an object with `id` and a rule such as `ttl` (ms)"


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_integer(low: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= low


#: The members of a rule: what they must be, and whether a value is.
_MEMBERS: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "ttl": ("a positive integer (ms)", _is_integer(1)),
    "extend": ("true or false", _is_flag),
    "replace": ("true or false", _is_flag),
    "maxDelay": ("a positive integer (ms)", _is_integer(1)),
    "reschedule": ("true or false", _is_flag),
    "keepLastIfActive": ("true or false", _is_flag),
    "deferrableBy": ("an integer >= 0 (s)", _is_integer(0)),
}
DEDUPLICATION_MEMBERS: Final = frozenset(_MEMBERS)
_STORING: Final = frozenset({"keepLastIfActive", "deferrableBy"})


class Rule(NamedTuple):
    """What becomes of a job whose deduplication id is taken: the members of the option without `id`. Hashable."""

    members: tuple[tuple[str, int | bool], ...] = ()

    @property
    def sets_delay(self) -> bool:
        """Whether a job of the rule may get another delay than its own."""
        return any(name in ("deferrableBy", "maxDelay") for name, _ in self.members)

    @property
    def storing(self) -> str | None:
        """The member by which a job may be stored, to be added when another one ends; None: there is none."""
        return next((name for name, value in self.members if value and name in _STORING), None)

    @property
    def text(self) -> str:
        """The members as JSON text."""
        return json.dumps(dict(self.members), separators=(",", ":"))

    def text_with_id(self, deduplication_id: str) -> str:
        """The option as JSON text; the id is JSON text, or a mark."""
        others = f",{self.text[1:-1]}" if self.members else ""
        return f'{{"id":{deduplication_id}{others}}}'


class DeduplicationId(NamedTuple):
    """The deduplication id of a job, and its rule."""

    id: str
    rule: Rule


class Deduplications:
    """Reads the property `deduplication` of rows. Rows with equal rules share one."""

    def __init__(self, dialect: str, option: str | None, members: frozenset[str], default: object) -> None:
        """option: the dialect's own name of the property, None if it has none. members: the members that its rules
        may have. default: the default of rows.

        Raises OptionError or DialectError for a wrong default.
        """
        self._dialect = dialect
        self._option = option
        self._allowed = members
        self._rules: dict[tuple[tuple[str, Any], ...], Rule] = {}
        self._default = {} if default is None else self._members(default)
        self._rule_of(self._default)

    def of(self, row: dict[str, Any]) -> DeduplicationId | None:
        """Takes the property out of the properties of a row, which include the defaults; None if the row has no id."""
        given = row.pop(DEDUPLICATION, None)
        if self._option and row.get(self._option) is not None:
            given = row.pop(self._option)
        if given is None:
            return None
        own = self._members(given)
        members = {**self._default, **own} if self._default else own
        rule = self._rule_of(members)
        if "id" in members:
            return DeduplicationId(members["id"], rule)
        if not own or own == self._default:
            return None
        raise OptionError(f"expected `{DEDUPLICATION}` to have an `id`, got: {given!r}")

    def _members(self, given: object) -> dict[str, Any]:
        """The members of a property that are given; the id is checked."""
        if self._option is None:
            raise lacks("deduplication", self._dialect, f"`{DEDUPLICATION}`")
        if not isinstance(given, Mapping):
            return {"id": _checked_id(DEDUPLICATION, _EXPECTED, given)}
        members = {name: value for name, value in given.items() if value is not None}
        if "id" in members:
            members["id"] = _checked_id(f"{DEDUPLICATION}.id", "a text that is not empty", members["id"])
        return members

    def _rule_of(self, members: Mapping[str, Any]) -> Rule:
        key = tuple(item for item in members.items() if item[0] != "id")
        try:
            known = self._rules.get(key)
        except TypeError:
            known = None
        if known is not None:
            return known
        self._check(dict(key))
        return self._rules.setdefault(key, Rule(key))

    def _check(self, members: Mapping[str, Any]) -> None:
        for name, value in members.items():
            if name not in _MEMBERS:
                raise OptionError(
                    f"unknown member `{name}` of `{DEDUPLICATION}`{did_you_mean(name, ['id', *_MEMBERS])}"
                )
            what, is_valid = _MEMBERS[name]
            if not is_valid(value):
                raise expected(f"{DEDUPLICATION}.{name}", what, value)
            if name not in self._allowed:
                known = ", ".join(f"`{member}`" for member in ("id", *sorted(self._allowed)))
                raise DialectError(f"expected `{DEDUPLICATION}` without `{name}`: {self._dialect} has only {known}")
        if "maxDelay" in members and not (members.get("replace") or members.get("reschedule")):
            raise OptionError(
                f"expected `{DEDUPLICATION}` with `maxDelay` to have `replace` or `reschedule`, got neither: add one "
                "of them, or leave `maxDelay` out"
            )
        if "deferrableBy" in members:
            for other in ("ttl", "keepLastIfActive"):
                if members.get(other):
                    raise OptionError(
                        f"expected `{DEDUPLICATION}` with one of `deferrableBy` and `{other}`, got both: leave one out"
                    )


def _checked_id(name: str, what: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        raise expected(name, what, value)
    return encodable(name, value)
