"""The column `token` of claimed jobs: the token of the job's lock, which no other claim has.

The suffix `#plain` marks a job whose options do not say how many completed jobs to keep, so that most jobs are settled
without reading them again.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from spark_bull.core.queue.work.claim_ledger import reader_of
from spark_bull.run.job.job_options import job_options

_PLAIN: Final = "#plain"


class SettleToken(NamedTuple):
    """`reader`: the query that has claimed the job. `is_plain`: it can be completed without reading its options."""

    lock_token: str
    reader: str
    is_plain: bool


class SettleTokens:
    """Makes the tokens of jobs claimed under one lock token. Equal options share one."""

    def __init__(self, lock_token: str) -> None:
        self._token = lock_token
        self._by_opts: dict[Any, str] = {}

    def of(self, opts: Any) -> str:
        """The token of a job with these options."""
        if opts not in self._by_opts:
            is_plain = job_options(opts or "{}").keep_completed is ...
            self._by_opts[opts] = f"{self._token}{_PLAIN}" if is_plain else self._token
        return self._by_opts[opts]


def read_settle_token(text: str) -> SettleToken:
    """Parses the column `token`. A text of another form is the token of a lock, and the name of a reader."""
    lock_token = text.removesuffix(_PLAIN)
    reader = reader_of(lock_token)
    return SettleToken(text, text, False) if reader is None else SettleToken(lock_token, reader, lock_token != text)
