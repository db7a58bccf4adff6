"""The ledger of a claiming query: which jobs it has taken, in order, so that a batch that comes again is the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_bull.queue.claim import ClaimSettings, claim_packed
from spark_bull.queue.handle import CHUNK_SIZE, QueueHandle

#: How long the ledger of a query that doesn't run any more stays.
TTL_MS: Final = 7 * 86_400_000


class Portion(NamedTuple):
    """Jobs claimed in one call: position of the first one, their number, and what they hold, for `unpack_claimed`."""

    start: int
    jobs: int
    packed: bytes


class Taken(NamedTuple):
    """What was claimed; limited_ms: no further job may start for so long (rate limit), 0: none holds."""

    portions: list[Portion]
    limited_ms: int


@dataclass(frozen=True)
class ClaimLedger:
    """`reader` names it, and is what the jobs' locks hold. Positions count the jobs ever claimed. Picklable."""

    handle: QueueHandle
    reader: str

    def _keys(self) -> tuple[str, str]:
        return self.handle.keys.claims(self.reader), self.handle.keys.claims_base(self.reader)

    def end(self) -> int:
        """How many jobs have ever been claimed."""
        ledger, base = self._keys()
        length, cut = self.handle.connection.pipeline([("LLEN", ledger), ("GET", base)])
        return int(length) + int(cut or 0)

    def ids(self, start: int, stop: int) -> list[str]:
        """Ids of the jobs at positions start..stop, the last one excluded; those cut off are left out."""
        ledger, base = self._keys()
        cut = int(self.handle.connection.call("GET", base) or 0)
        if stop <= cut:
            return []
        ids = self.handle.connection.call("LRANGE", ledger, max(0, start - cut), stop - cut - 1)
        return [job_id.decode() for job_id in ids]

    def claim(self, seat: ClaimSettings, most: int, chunk_size: int = CHUNK_SIZE) -> Taken:
        """Claims up to `most` jobs, `chunk_size` in a call; returns them packed, in the order of their positions."""
        portions: list[Portion] = []
        claimed, limited_ms, position = 0, 0, self.end()
        while claimed < most:
            size = min(chunk_size, most - claimed)
            claim, packed = claim_packed(self.handle, seat, size, ledger=self._keys()[0], token=self.reader)
            if claim.claimed:
                portions.append(Portion(position + claimed, claim.claimed, packed))
            claimed += claim.claimed
            limited_ms = claim.limited_ms
            if not claim.more:
                break
        if claimed:
            self.keep()
        return Taken(portions, limited_ms)

    def begin(self, position: int) -> None:
        """Notes that the jobs before a position are dealt out to tasks."""
        self.handle.connection.call("SET", self.handle.keys.claims_begun(self.reader), position, "PX", TTL_MS)

    def begun(self) -> int:
        """The position before which jobs were dealt out to tasks."""
        return int(self.handle.connection.call("GET", self.handle.keys.claims_begun(self.reader)) or 0)

    def keep(self) -> None:
        """Lets the ledger live on."""
        self.handle.connection.pipeline([("PEXPIRE", key, TTL_MS) for key in self._keys()])

    def cut(self, position: int) -> None:
        """Forgets the jobs before a position."""
        ledger, base = self._keys()
        self.handle.connection.script(
            "claims/cut", {"ledger": ledger, "base": base}, {"position": position, "ttl_ms": TTL_MS}
        )
