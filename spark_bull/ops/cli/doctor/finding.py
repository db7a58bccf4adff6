"""What a check finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

#: `unchecked`: the user may not read what the check needs.
Level = Literal["ok", "warning", "problem", "unchecked"]

#: Ids that a finding names.
_NAMED: Final = 5


@dataclass(frozen=True)
class Repair:
    """A repair that is safe while the queue is used. what: for the question. run: does it, returns what was done."""

    what: str
    run: Callable[[], str]


@dataclass(frozen=True)
class Finding:
    """One result of a check. advice: a command to run, or what to change. queue: that it is about, if any."""

    level: Level
    found: str
    advice: str = ""
    repair: Repair | None = None
    check: str = ""
    queue: str | None = None


def number_of(count: int, noun: str) -> str:
    """Such as `1 job` or `2,000 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def some(ids: Sequence[str]) -> str:
    """The first of some ids."""
    return ", ".join(ids[:_NAMED]) + (", …" if len(ids) > _NAMED else "")


def ok(found: str, advice: str = "") -> Finding:
    return Finding("ok", found, advice)


def warning(found: str, advice: str, repair: Repair | None = None) -> Finding:
    return Finding("warning", found, advice, repair)


def problem(found: str, advice: str, repair: Repair | None = None) -> Finding:
    return Finding("problem", found, advice, repair)


def unchecked(why: str) -> Finding:
    return Finding("unchecked", f"could not check: {why}")
