"""Tickets: what the column `token` of claimed jobs holds, so that most can be settled without being read again.

It is the token of the lock; `#plain` follows for a job whose options say nothing about how many completed ones to keep.
"""

from __future__ import annotations

from typing import Any, Final

from spark_bull.runtime.settling import job_options

_PLAIN: Final = "#plain"


class Tickets:
    """The tickets of jobs claimed under one token; jobs with the same options share one."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._known: dict[Any, str] = {}

    def of(self, opts: Any) -> str:
        """The ticket of a job with these options."""
        if opts not in self._known:
            is_plain = job_options(opts or "{}").keep_completed is ...
            self._known[opts] = f"{self._token}{_PLAIN}" if is_plain else self._token
        return self._known[opts]


def read_ticket(ticket: str) -> tuple[str, bool]:
    """The lock's token, and whether the job needs no reading to be completed."""
    token = ticket.removesuffix(_PLAIN)
    return token, token != ticket
