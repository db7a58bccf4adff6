"""The ledger of a claiming query: the jobs it has claimed, in order, so that a repeated batch has the same jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_bull.queue.claim import claim_packed
from spark_bull.queue.claim_settings import ClaimSettings
from spark_bull.queue.handle import CHUNK_SIZE, QueueHandle

#: TTL of the ledger after the last batch of its query.
TTL_MS: Final = 7 * 86_400_000


class Portion(NamedTuple):
    """Jobs claimed in one call: position of the first one, their number, and their fields for `unpack_claimed`."""

    start: int
    jobs: int
    packed: bytes


class Taken(NamedTuple):
    """What one call has claimed: jobs, perhaps none, and their ids.

    limited_ms: remaining time of a rate limit, 0: none. more: whether further jobs can be claimed now.
    """

    portion: Portion
    ids: list[str]
    limited_ms: int
    more: bool


@dataclass(frozen=True)
class ClaimLedger:
    """`reader`: its name, and the token of the jobs' locks. Positions count all jobs ever claimed. Picklable."""

    handle: QueueHandle
    reader: str

    def _keys(self) -> tuple[str, str]:
        return self.handle.keys.claims(self.reader), self.handle.keys.claims_base(self.reader)

    def end(self) -> int:
        """The number of jobs ever claimed."""
        ledger, base = self._keys()
        length, cut = self.handle.connection.pipeline([("LLEN", ledger), ("GET", base)])
        return int(length) + int(cut or 0)

    def ids(self, start: int, stop: int) -> list[str]:
        """Ids of the jobs at positions start..stop, the last one excluded; those that were cut off are missing."""
        ledger, base = self._keys()
        cut = int(self.handle.connection.call("GET", base) or 0)
        if stop <= cut:
            return []
        ids = self.handle.connection.call("LRANGE", ledger, max(0, start - cut), stop - cut - 1)
        return [job_id.decode() for job_id in ids]

    def claim(self, seat: ClaimSettings, most: int, chunk_size: int = CHUNK_SIZE) -> Iterator[Taken]:
        """Claims up to `most` jobs, `chunk_size` per call; yields what each call has claimed, while there are more.

        Call `keep` after the first one.
        """
        position, left, more = self.end(), most, True
        while more and left > 0:
            size = min(chunk_size, left)
            claim, ids, packed = claim_packed(self.handle, seat, size, ledger=self._keys()[0], token=self.reader)
            more = claim.more
            yield Taken(Portion(position, len(ids), packed), ids, claim.limited_ms, more)
            position, left = position + len(ids), left - len(ids)

    def begin(self, position: int) -> None:
        """Records that the jobs before a position are assigned to tasks."""
        self.handle.connection.call("SET", self.handle.keys.claims_begun(self.reader), position, "PX", TTL_MS)

    def begun(self) -> int:
        """The position before which jobs were assigned to tasks."""
        return int(self.handle.connection.call("GET", self.handle.keys.claims_begun(self.reader)) or 0)

    def keep(self) -> None:
        """Renews the TTL of the ledger."""
        self.handle.connection.pipeline([("PEXPIRE", key, TTL_MS) for key in self._keys()])

    def cut(self, position: int) -> None:
        """Removes the entries before a position."""
        ledger, base = self._keys()
        self.handle.connection.script(
            "claims/cut", {"ledger": ledger, "base": base}, {"position": position, "ttl_ms": TTL_MS}
        )
