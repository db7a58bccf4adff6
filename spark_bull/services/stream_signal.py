"""How a service waits until something happens in the event streams of several queues."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from spark_bull.errors import OptionError
from spark_bull.store.settings import RedisSettings
from spark_bull.worker.job_signal import IDLE_S, blocking

#: How often streams are looked at that one command can't wait for.
LOOK_S: Final = 0.2


class StreamSignal:
    """Waits for new entries in one of some streams. Has a connection of its own."""

    def __init__(self, settings: RedisSettings) -> None:
        self._connection = blocking(settings, IDLE_S)
        self._one_by_one = False

    def wait(self, last: Mapping[str, str]) -> list[str]:
        """The streams that have entries after these ids; none after some seconds without any. Raises ConnectionLost."""
        if not self._one_by_one:
            try:
                return self._wait_for_all(last)
            except OptionError:
                # A Redis Cluster takes no command for keys of several slots.
                self._one_by_one = True
        looks = [("XREAD", "COUNT", 1, "STREAMS", stream, entry) for stream, entry in last.items()]
        rung = [stream for stream, found in zip(last, self._connection.pipeline(looks), strict=True) if found]
        if not rung:
            time.sleep(LOOK_S)
        return rung

    def _wait_for_all(self, last: Mapping[str, str]) -> list[str]:
        found = self._connection.call(
            "XREAD", "COUNT", 1, "BLOCK", int(IDLE_S * 1000), "STREAMS", *last.keys(), *last.values()
        )
        # RESP3 answers with a map.
        return [(name if isinstance(name, bytes) else name[0]).decode() for name in found or ()]
