"""Terms of a job: its priority and parent, its deduplication id, the delay of its next attempt, when it may start.

The deduplication id is in BullMQ's option `deduplication`, in Bull 4 in `debounce`.

A property `deduplication` is an id, or a mapping with an id and the rule for it. A default without an id is the rule of
the jobs that give an id.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from random import random
from typing import Any, Final, NamedTuple
from zlib import crc32

from spark_bull.core.dialects.features import lacks
from spark_bull.core.errors import DialectError, OptionError, did_you_mean, encodable, expected

#: The delay of an `exponential` backoff that stands in for a type that is not known, if it has none, ms.
DEFAULT_MS: Final = 1_000


def bull_exponential_ms(delay: float, attempts_made: int) -> int:
    """(2^n - 1) * delay after the n-th attempt, rounded half up as in JavaScript: Bull 1 to 4."""
    return round_half_up((2**attempts_made - 1) * delay)


def bullmq_exponential_ms(delay: float, attempts_made: int, jitter: float = 0) -> int:
    """2^(n-1) * delay after the n-th attempt, rounded half up as in JavaScript: BullMQ."""
    return fixed_ms(round_half_up(2 ** (attempts_made - 1) * delay), jitter)


def fixed_ms(delay: float, jitter: float = 0) -> int:
    """A constant delay, reduced by a random part of up to `jitter` (0 to 1)."""
    if jitter <= 0:
        return int(delay)
    return math.floor(random() * delay * jitter + delay * (1 - jitter))


def round_half_up(value: float) -> int:
    return math.floor(value + 0.5)


PRIORITY: Final = "priority"
#: Name -> number, of which 1 is the highest.
PRIORITIES: Final = {"critical": 1, "high": 2, "medium": 3, "normal": 4, "low": 5}
_LARGEST: Final = 2**53 - 1


class QueuePriority(str):
    """The name of a priority whose job is added to the queue of that priority; see `keys.priority_queue`."""


def priority_number(priority: object, highest: int | None = None) -> int:
    """The number of a priority that is a number or a name. Raises OptionError for another value.

    highest: the largest number that is allowed, None: the largest integer that JavaScript has.
    """
    if isinstance(priority, str) and priority in PRIORITIES:
        return PRIORITIES[priority]
    if isinstance(priority, int) and not isinstance(priority, bool) and 0 <= priority <= (highest or _LARGEST):
        return priority
    numbers = "an integer >= 0" if highest is None else f"an integer from 0 to {highest:,}"
    hint = did_you_mean(priority, PRIORITIES) if isinstance(priority, str) else ""
    raise OptionError(f"{expected(PRIORITY, f'{numbers}, or one of {listed()}', priority)}{hint}")


def listed() -> str:
    """The names, the highest first."""
    return ", ".join(PRIORITIES)


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


EXPIRE_AFTER_MS: Final = "expireAfterMs"
EXPIRE_AT: Final = "expireAt"
DELIVERY: Final = "delivery"
LOCK_MS: Final = "lockMs"
SPREAD_MS: Final = "spreadMs"
#: What makes the delays by `spreadMs` of one write, or one call, differ from the delays of others.
SPREAD_SEED: Final = "spreadSeed"

AT_LEAST_ONCE: Final = "at-least-once"
AT_MOST_ONCE: Final = "at-most-once"
#: The shortest duration of a lock, ms.
MIN_LOCK_MS: Final = 300
#: The last ms of the year 9999, the maximum of Spark's and Python's timestamps.
_LAST_MS: Final = 253_402_300_799_999


class Expiry(NamedTuple):
    """When a job expires: ms after its creation, or a time, ms since 1970. At most one is given."""

    after: int | None = None
    at: int | None = None


def take_expiry(row: dict[str, Any]) -> Expiry:
    """Removes `expireAfterMs` and `expireAt` from a row and returns them. Raises OptionError."""
    after, at = row.pop(EXPIRE_AFTER_MS, None), row.pop(EXPIRE_AT, None)
    if after is not None and at is not None:
        raise OptionError(f"expected one of `{EXPIRE_AFTER_MS}` and `{EXPIRE_AT}`, got both: leave one out")
    if after is not None:
        check_integer(EXPIRE_AFTER_MS, after, 1, "a positive integer (ms)")
    if at is not None:
        check_integer(EXPIRE_AT, at, 1, "a time (ms since 1970)")
    return Expiry(after, at)


def take_spread(row: dict[str, Any]) -> int:
    """Takes `spreadMs` out of the properties of a row; 0: none. Raises OptionError."""
    spread = row.pop(SPREAD_MS, None)
    if spread is None:
        return 0
    return check_integer(SPREAD_MS, spread, 0, "an integer >= 0 (ms)")


def delay_within(spread: int, seed: object, number: object) -> int:
    """The delay of a job from 0 to `spread`, ms. The same seed and number give the same one."""
    return crc32(f"{seed}:{number}".encode()) * spread >> 32


def check_start(expiry: Expiry, delay: int, run_at: int | None, timestamp: int | None) -> None:
    """Raises OptionError for a job that expires before it may start.

    delay: with the longest one by `spreadMs`, ms. timestamp: time of creation, ms since 1970, if given.
    """
    start: int | None = None
    if expiry.after is not None:
        start = delay if run_at is None else (None if timestamp is None else run_at - timestamp)
    elif expiry.at is not None:
        start = run_at if run_at is not None else (None if timestamp is None else timestamp + delay)
    name, end = (EXPIRE_AFTER_MS, expiry.after) if expiry.at is None else (EXPIRE_AT, expiry.at)
    if start is not None and end is not None and end <= start and (delay or run_at is not None):
        what = "runAt" if run_at is not None else "delay"
        raise OptionError(
            f"expected `{name}` to end after `{what}`, with which the job may start, got: {end} and {start} ms: such a "
            "job would never run"
        )


def prepare_terms(opts: dict[str, Any]) -> bool:
    """Checks `delivery` and `lockMs` in a job's options. Returns whether the job runs at most once.

    Such a job has one attempt. Raises OptionError.
    """
    if opts.get(LOCK_MS) is not None:
        check_integer(LOCK_MS, opts[LOCK_MS], MIN_LOCK_MS, f"an integer >= {MIN_LOCK_MS} (ms)")
    delivery = opts.get(DELIVERY)
    if delivery not in (None, AT_LEAST_ONCE, AT_MOST_ONCE):
        raise expected(DELIVERY, f"{AT_MOST_ONCE} or {AT_LEAST_ONCE} for a job", delivery)
    if delivery != AT_MOST_ONCE:
        opts.pop(DELIVERY, None)
        return False
    if (opts.get("attempts") or 1) > 1:
        raise OptionError(
            f"expected `attempts` to be 1 with `{DELIVERY}` {AT_MOST_ONCE}, got: {opts['attempts']}: another attempt "
            "would run the job again"
        )
    opts["attempts"] = 1
    return True


def check_not_stored(given: Mapping[str, Any], rule: str | None) -> None:
    """Raises OptionError for a job with such terms whose deduplication rule stores it, to be added when another ends.

    given: the terms. rule: the member of the rule that does so; None: none.
    """
    for name, value in given.items():
        if rule and value:
            raise OptionError(
                f"expected no `{name}` with `deduplication.{rule}`: jobs that are stored to run later lose it"
            )


def check_integer(name: str, value: object, low: int, what: str) -> int:
    """Raises OptionError unless the value of a property is an integer of at least `low`, and not beyond all times."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _LAST_MS:
        raise expected(name, what, value)
    return value


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
