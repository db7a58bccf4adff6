"""The column `token` of claimed jobs. It lets most jobs be settled without reading them again.

It holds the token of the job's lock, and a position in the ledger of claims at or before that of the job: a job that
runs again at once may be claimed under the same lock token. The suffix `#plain` marks a job whose options do not say
how many completed jobs to keep.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from spark_bull.worker.job_options import job_options

_PLAIN: Final = "#plain"


class SettleToken(NamedTuple):
    """`is_plain`: the job can be completed without reading its options."""

    lock_token: str
    position: int
    is_plain: bool


class SettleTokens:
    """Makes the tokens of jobs claimed under one lock token, at `position` or after. Equal options share one."""

    def __init__(self, lock_token: str, position: int) -> None:
        self._token = f"{lock_token}#{position}"
        self._by_opts: dict[Any, str] = {}

    def of(self, opts: Any) -> str:
        """The token of a job with these options."""
        if opts not in self._by_opts:
            is_plain = job_options(opts or "{}").keep_completed is ...
            self._by_opts[opts] = f"{self._token}{_PLAIN}" if is_plain else self._token
        return self._by_opts[opts]


def read_settle_token(text: str) -> SettleToken:
    """Parses the column `token`. A text of another form is the token of a lock."""
    rest = text.removesuffix(_PLAIN)
    lock_token, mark, position = rest.rpartition("#")
    if not mark or not position.isdecimal():
        return SettleToken(text, 0, False)
    return SettleToken(lock_token, int(position), rest != text)
