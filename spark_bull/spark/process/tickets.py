"""Tickets: what the column `token` of claimed jobs holds, so that most can be settled without being read again.

It is the token of the lock, and the position in the ledger of claims at or after which the job was claimed: a job that
runs again at once may be claimed under the same token. `#plain` follows for a job whose options say nothing about how
many completed ones to keep.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from spark_bull.worker.outcome_policy import job_options

_PLAIN: Final = "#plain"


class Ticket(NamedTuple):
    """`is_plain`: the job needs no reading to be completed."""

    token: str
    position: int
    is_plain: bool


class Tickets:
    """The tickets of jobs claimed under one token, at `position` or after; jobs with the same options share one."""

    def __init__(self, token: str, position: int) -> None:
        self._ticket = f"{token}#{position}"
        self._known: dict[Any, str] = {}

    def of(self, opts: Any) -> str:
        """The ticket of a job with these options."""
        if opts not in self._known:
            is_plain = job_options(opts or "{}").keep_completed is ...
            self._known[opts] = f"{self._ticket}{_PLAIN}" if is_plain else self._ticket
        return self._known[opts]


def read_ticket(text: str) -> Ticket:
    """What a ticket says. A text that is none is the token of a lock."""
    rest = text.removesuffix(_PLAIN)
    token, mark, position = rest.rpartition("#")
    if not mark or not position.isdecimal():
        return Ticket(text, 0, False)
    return Ticket(token, int(position), rest != text)
