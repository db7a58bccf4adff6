"""Tickets: what the column `token` of claimed jobs holds, so that most can be settled without being read again.

It is the token of the lock. For a job whose end concerns nobody else and that says nothing about how many to keep, `#n`
follows: the number of attempts made with this one.
"""

from __future__ import annotations

from spark_bull.dialects.base import Dialect
from spark_bull.outcomes import ClaimedJob
from spark_bull.runtime.settling import keep_of

_SIGN = "#"


def ticket_of(dialect: Dialect, token: str, job: ClaimedJob) -> str:
    if job.has_kin or keep_of(dialect, job.opts, "removeOnComplete") is not None:
        return token
    return f"{token}{_SIGN}{job.attempts_made + 1}"


def read_ticket(ticket: str) -> tuple[str, int | None]:
    """The lock's token, and the number of attempts of a job that needs no reading."""
    token, _, made = ticket.partition(_SIGN)
    return token, int(made) if made.isdigit() else None
