"""Waits for new entries in the event streams of several queues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from spark_bull.errors import OptionError
from spark_bull.store.connection import BlockingConnection
from spark_bull.store.settings import RedisSettings
from spark_bull.worker.job_signal import IDLE_S

#: Polling interval for streams of a Redis Cluster, where one command cannot block on keys of several slots.
POLL_S: Final = 0.2


class StreamSignal:
    """Waits for new entries in any of several streams. Uses its own connection."""

    def __init__(self, settings: RedisSettings) -> None:
        self._connection = BlockingConnection(settings, IDLE_S)
        self._polls = False

    def wait(self, last: Mapping[str, str]) -> list[str]:
        """Returns the streams with entries after these ids; empty after a timeout. Raises ConnectionLost."""
        if not self._polls:
            try:
                return self._wait_for_all(last)
            except OptionError:
                # CROSSSLOT: Redis Cluster rejects a command with keys of several slots.
                self._polls = True
        commands = [("XREAD", "COUNT", 1, "STREAMS", stream, entry) for stream, entry in last.items()]
        changed = [stream for stream, found in zip(last, self._connection.pipeline(commands), strict=True) if found]
        if not changed:
            time.sleep(POLL_S)
        return changed

    def _wait_for_all(self, last: Mapping[str, str]) -> list[str]:
        found = self._connection.call(
            "XREAD", "COUNT", 1, "BLOCK", int(IDLE_S * 1000), "STREAMS", *last.keys(), *last.values()
        )
        # The reply is a map in RESP3, a list of pairs in RESP2.
        return [(name if isinstance(name, bytes) else name[0]).decode() for name in found or ()]
