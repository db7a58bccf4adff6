"""Changes of existing jobs: the actions, the columns that they use, and their form in a chunk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from spark_bull.core.dialects.base import Dialect, check_eta
from spark_bull.core.dialects.features import Feature
from spark_bull.core.error_text import sendable
from spark_bull.core.errors import OptionError, SparkBullError, check_encodable, did_you_mean, encodable, expected


class Action(NamedTuple):
    """What can be done to a job. needs, takes: columns that it requires, or uses if they are given.

    wanted: the state that it expects. feature: what a dialect needs for it.
    """

    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    wanted: str = ""
    feature: Feature | None = None


#: The condition for jobs that are removed with their children.
REMOVABLE: Final = "in a tree of at most 1,000 levels"

ACTIONS: Final[Mapping[str, Action]] = {
    "retry": Action(takes=("data", "lifo", "resetAttempts", "state"), wanted="failed"),
    "promote": Action(takes=("data",), wanted="delayed"),
    "delay": Action(needs=("delay",), takes=("data",), wanted="waiting or delayed"),
    "prioritize": Action(needs=("priority",), takes=("data", "lifo"), feature="priorities"),
    "update": Action(needs=("data",)),
    "remove": Action(wanted=REMOVABLE),
    "fail": Action(needs=("failedReason",), wanted="waiting or delayed"),
    "complete": Action(takes=("returnvalue",), wanted="waiting or delayed, without unfinished or failed children"),
    "move": Action(
        needs=("to",), takes=("data",), wanted="in any state but waiting-children, without parent and children"
    ),
    "free": Action(wanted="the one that has its deduplication id", feature="deduplication"),
    "discard-children": Action(wanted=REMOVABLE, feature="flows"),
}

#: Columns of changes, and their names in a chunk.
COLUMNS: Final[Mapping[str, str]] = {
    "id": "id",
    "action": "action",
    "data": "data",
    "delay": "delay",
    "priority": "priority",
    "lifo": "lifo",
    "resetAttempts": "reset_attempts",
    "state": "from",
    "failedReason": "reason",
    "returnvalue": "value",
    "to": "to",
}
TO_BASE: Final = "to_base"


def encode_changes(
    dialect: Dialect, rows: Mapping[str, Sequence[Any]], base_of: Callable[[str], str], numbers: Sequence[int | str]
) -> list[dict[str, Any]]:
    """Checks changes and encodes them as rows of a chunk.

    rows: lists of equal length by the names of COLUMNS; `data` and `returnvalue` are JSON text; None means not given.
    base_of: checks the name of another queue, and returns the start of its keys. numbers: row numbers, for
    errors.
    Raises OptionError or DialectError with row, column and job.
    """
    encoded = []
    for position, number in enumerate(numbers):
        row = {name: column[position] for name, column in rows.items() if column[position] is not None}
        try:
            encoded.append(_encoded(dialect, row, base_of))
        except SparkBullError as error:
            of_job = f" (job {row['id']})" if "id" in row else ""
            raise type(error)(sendable(f"row {number}{of_job}: {error}")) from None
    return encoded


def _encoded(dialect: Dialect, row: Mapping[str, Any], base_of: Callable[[str], str]) -> dict[str, Any]:
    job_id = row.get("id")
    if isinstance(job_id, bool) or not isinstance(job_id, (str, int)) or job_id == "":
        raise expected("id", "the id of a job", job_id)
    encodable("id", str(job_id))
    name = str(row.get("action"))
    action = action_of(dialect, name)
    for column in action.needs:
        if column not in row:
            raise OptionError(f"expected a value in column `{column}` for the action {name}, got none")
    used = {column: row[column] for column in (*action.needs, *action.takes) if column in row}
    used |= {column: check(dialect, column, used[column]) for column, check in _CHECKS.items() if column in used}
    check_encodable("change", used)
    encoded = {COLUMNS[column]: value for column, value in used.items()}
    encoded |= {"id": str(job_id), "action": name.replace("-", "_")}
    if "to" in encoded:
        encoded[TO_BASE] = base_of(encoded["to"])
    return encoded


def action_of(dialect: Dialect, name: str) -> Action:
    """The action of this name. Raises OptionError if there is none, DialectError if the dialect lacks it."""
    try:
        action = ACTIONS[name]
    except KeyError:
        raise OptionError(
            f"expected `action` to be one of {', '.join(ACTIONS)}, got: {name!r}{did_you_mean(name, ACTIONS)}"
        ) from None
    dialect.check_action(name)
    if action.feature is not None:
        dialect.require(action.feature, f"action {name} for a queue of {dialect.name}")
    return action


def _delay(dialect: Dialect, name: str, value: Any) -> Any:
    if not isinstance(value, int) or isinstance(value, bool):
        raise expected(name, "ms >= 0", value)
    check_eta(None, value, None)
    return value


def _json(dialect: Dialect, name: str, value: Any) -> Any:
    try:
        json.loads(value)
    except (ValueError, TypeError, RecursionError):
        raise OptionError(f"expected `{name}` to hold JSON, got: {str(value)[:200]!r}") from None
    return value


#: Checks of columns, which return the value that is stored.
_CHECKS: Final[Mapping[str, Callable[[Dialect, str, Any], Any]]] = {
    "delay": _delay,
    "priority": lambda dialect, _, value: dialect.check_priority(value),
    "data": _json,
    "returnvalue": _json,
}
