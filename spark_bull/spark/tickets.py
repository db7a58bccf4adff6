"""Tickets: what the column `token` of claimed jobs holds, so that most can be settled without being read again.

It is the token of the lock. For a job whose end concerns nobody else and that says nothing about how many to keep, `#n`
follows: the number of attempts made with this one.
"""

from __future__ import annotations

from typing import Any, Final

from spark_bull.runtime.settling import job_options

_SIGN: Final = "#"


class Tickets:
    """The tickets of jobs claimed under one token; jobs that are alike in what matters share one."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._known: dict[tuple[Any, Any], str] = {}

    def of(self, opts: Any, attempts_made: Any, *kin: Any) -> str:
        """The ticket of a job. kin: its parent, its deduplication id, false for none."""
        if any(kin):
            return self._token
        alike = (opts, attempts_made)
        if alike not in self._known:
            plain = job_options(opts or "{}").keep_completed is ...
            self._known[alike] = f"{self._token}{_SIGN}{int(attempts_made or 0) + 1}" if plain else self._token
        return self._known[alike]


def read_ticket(ticket: str) -> tuple[str, int | None]:
    """The lock's token, and the number of attempts of a job that needs no reading."""
    token, _, made = ticket.partition(_SIGN)
    return token, int(made) if made.isdigit() else None
