"""Parents of jobs: BullMQ's option `parent`, and what becomes of the parent when the job fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from spark_bull.core.errors import OptionError, did_you_mean, encodable, expected

PARENT: Final = "parent"
#: Mark in a job's options text that a script replaces by the parent; see `base.MARKS`.
PARENT_MARK: Final = "\x05"
#: BullMQ's options for the failure of a child, and their names in its field `parent`; a job has at most one of them.
FAILURE_FLAGS: Final[Mapping[str, str]] = {
    "failParentOnFailure": "fpof",
    "continueParentOnFailure": "cpof",
    "ignoreDependencyOnFailure": "idof",
    "removeDependencyOnFailure": "rdof",
}
#: The member `onFailure` of a parent -> the option of BullMQ; None: the parent waits until the child has completed.
ON_FAILURE: Final[Mapping[str, str | None]] = {
    "wait": None,
    "fail": "failParentOnFailure",
    "continue": "continueParentOnFailure",
    "ignore": "ignoreDependencyOnFailure",
    "remove": "removeDependencyOnFailure",
}
PARENT_MEMBERS: Final = ("queue", "id", "onFailure")


class ParentJob(NamedTuple):
    """The parent of a job. queue: its name, or with the prefix of its keys, as in BullMQ."""

    queue: str
    id: str


def take_parent(row: dict[str, Any]) -> ParentJob | None:
    """Takes the parent out of the properties of a row; `onFailure` becomes the option of BullMQ.

    Raises OptionError for a parent that is no mapping with `queue` and `id`.
    """
    given = row.pop(PARENT, None)
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise expected(PARENT, "an object with `queue` and `id`", given)
    for name in given:
        if name not in PARENT_MEMBERS:
            raise OptionError(f"unknown member `{name}` of `{PARENT}`{did_you_mean(name, PARENT_MEMBERS)}")
    queue, parent_id = given.get("queue"), given.get("id")
    if isinstance(parent_id, int) and not isinstance(parent_id, bool):
        parent_id = str(parent_id)
    if not isinstance(queue, str) or not queue.rpartition(":")[2]:
        raise expected(f"{PARENT}.queue", "the name of a queue", queue)
    if not isinstance(parent_id, str) or not parent_id:
        raise expected(f"{PARENT}.id", "the id of a job", parent_id)
    on_failure = given.get("onFailure")
    if on_failure is not None:
        row |= failure_option(f"{PARENT}.onFailure", on_failure)
    return ParentJob(encodable(f"{PARENT}.queue", queue), encodable(f"{PARENT}.id", parent_id))


def failure_option(name: str, on_failure: object) -> dict[str, Any]:
    """The option of BullMQ for a value of ON_FAILURE. Raises OptionError, with `name`, for another value."""
    if not isinstance(on_failure, str) or on_failure not in ON_FAILURE:
        raise expected(name, f"one of {', '.join(ON_FAILURE)}", on_failure)
    option = ON_FAILURE[on_failure]
    return {option: True} if option else {}


def failure_flag(opts: Mapping[str, Any]) -> str | None:
    """The name of a job's failure policy in its field `parent`; None if the parent waits."""
    return next((flag for name, flag in FAILURE_FLAGS.items() if opts.get(name)), None)
