"""The ledger of a claiming query: the jobs it has claimed, in order, so that a repeated batch has the same jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple
from uuid import uuid4

import msgpack

from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.queue.handle.handle import CHUNK_SIZE, QueueHandle
from spark_bull.core.queue.work.claim import claim_packed
from spark_bull.core.queue.work.verbs import CLAIMS_TTL_MS

_TOKEN: Final = re.compile(r"(?P<reader>.*)#[0-9a-f]{32}", re.DOTALL)


def new_lock_token(reader: str) -> str:
    """A token for the locks of one claim. No other claim has it, so that an old outcome settles no later claim."""
    return f"{reader}#{uuid4().hex}"


def reader_of(lock_token: str) -> str | None:
    """The reader that has made a token; None for a token of another form."""
    match = _TOKEN.fullmatch(lock_token)
    return match and match["reader"]


class Portion(NamedTuple):
    """Jobs claimed in one call: position of the first one, their number, their fields for `unpack_claimed`, and the
    token of their locks.
    """

    start: int
    jobs: int
    packed: bytes
    token: str


class Taken(NamedTuple):
    """What one call has claimed: jobs, perhaps none, and their ids.

    limited_ms: remaining time of a rate limit, 0: none. more: whether more jobs can be claimed now.
    """

    portion: Portion
    ids: list[str]
    limited_ms: int
    more: bool


class LedgerEntry(NamedTuple):
    """Jobs of one claim, in order, and the token of their locks."""

    token: str
    ids: list[str]


@dataclass(frozen=True)
class ClaimLedger:
    """`reader`: its name. Positions count all jobs ever claimed. Picklable."""

    handle: QueueHandle
    reader: str

    def _keys(self) -> tuple[str, str]:
        return self.handle.keys.claims(self.reader), self.handle.keys.claims_end(self.reader)

    def end(self) -> int:
        """The number of jobs ever claimed."""
        return int(self.handle.connection.call("GET", self._keys()[1]) or 0)

    def claims(self, start: int, stop: int) -> list[LedgerEntry]:
        """The jobs at positions start..stop, the last one excluded, by their claims; those that were cut off are
        missing.
        """
        ledger, _ = self._keys()
        # The last job of a claim is at the position before its score.
        within = ("ZRANGEBYSCORE", ledger, f"({start}", f"({stop}", "WITHSCORES")
        last = ("ZRANGEBYSCORE", ledger, stop, "+inf", "WITHSCORES", "LIMIT", 0, 1)
        claims = []
        for packed, score in chain(*self.handle.connection.pipeline([within, last])):
            token, ids = msgpack.unpackb(packed, raw=False, unicode_errors="replace")
            first = int(score) - len(ids)
            within_range = ids[max(0, start - first) : max(0, stop - first)]
            claims.append(LedgerEntry(token, within_range))
        return [claim for claim in claims if claim.ids]

    def claim(self, seat: WorkSettings, most: int, chunk_size: int = CHUNK_SIZE) -> Iterator[Taken]:
        """Claims up to `most` jobs, `chunk_size` per call; yields what each call has claimed, while there are more."""
        position, left, more = self.end(), most, True
        while more and left > 0:
            size, token = min(chunk_size, left), new_lock_token(self.reader)
            claim, ids, packed = claim_packed(self.handle, seat, size, reader=self.reader, token=token)
            more = claim.more
            yield Taken(Portion(position, len(ids), packed, token), ids, claim.limited_ms, more)
            position, left = position + len(ids), left - len(ids)

    def go_on_at(self, position: int) -> None:
        """Sets the position of the next job to be claimed, after the ledger was lost."""
        self.handle.connection.call("SET", self._keys()[1], position, "PX", CLAIMS_TTL_MS)

    def cut(self, position: int) -> None:
        """Removes the claims all of whose jobs are before a position, and renews the TTL of the ledger."""
        ledger, end = self._keys()
        cut = ("ZREMRANGEBYSCORE", ledger, "-inf", position)
        self.handle.connection.pipeline([cut, *(("PEXPIRE", key, CLAIMS_TTL_MS) for key in (ledger, end))])
