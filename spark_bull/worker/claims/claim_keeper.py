"""Extends the locks of the jobs of a claiming query until they are settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_bull.worker.claims.lock_keeper import Hold, LockKeeper


class ClaimKeeper(LockKeeper):
    """Drops jobs whose lock is gone: they were settled. Its thread starts with the first jobs, and never ends."""

    thread_name = "claims"

    def hold(self, token: str, job_ids: Sequence[str], since: int = 0, own_ms: Mapping[str, int] | None = None) -> None:
        super().hold(token, job_ids, since, own_ms)
        with self._guard:
            if self._held and self._thread.ident is None:
                self._thread.start()

    def release_claim(self, token: str, job_ids: Sequence[str]) -> None:
        """Stops extending the locks of the jobs of a claim; those that were claimed again since stay held."""
        with self._guard:
            for job_id in job_ids:
                hold = self._held.get(job_id)
                if hold is not None and hold.token == token:
                    del self._held[job_id]

    def _record_lost(self, held: Mapping[str, Hold], gone: Sequence[str]) -> None:
        with self._guard:
            for job_id in gone:
                # It may have been claimed again meanwhile.
                if self._held.get(job_id) is held[job_id]:
                    del self._held[job_id]
