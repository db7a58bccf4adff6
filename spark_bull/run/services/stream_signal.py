"""Waits for new entries in the event streams of several queues."""

from __future__ import annotations

from collections.abc import Mapping

from spark_bull.core.store.settings import RedisSettings
from spark_bull.core.store.streams import StreamReader
from spark_bull.run.claims.job_signal import BLOCK_S


class StreamSignal:
    """Waits for new entries in any of several streams. Uses its own connection."""

    def __init__(self, settings: RedisSettings) -> None:
        self._reader = StreamReader(settings, BLOCK_S)

    def wait(self, last: Mapping[str, str]) -> list[str]:
        """Returns the streams with entries after these ids; empty after a timeout. Raises ConnectionLost."""
        return list(self._reader.wait(last, 1, BLOCK_S))

    def stop_retrying(self) -> None:
        """Lets a call of another thread end when Redis does, without a warning."""
        self._reader.stop_retrying()
