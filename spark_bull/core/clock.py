"""The two clocks: epoch time for what is stored, monotonic time for waiting."""

from __future__ import annotations

import time
from typing import Final

#: The score of a delayed job is when it is due, ms since 1970, times this; the rest is an order within the ms.
DELAYED_SCALE: Final = 4096
#: Maximum time of a delayed job: its score must stay below 2^53.
LAST_ETA_MS: Final = 2**53 // DELAYED_SCALE - 1


def epoch_ms() -> int:
    """Returns the time in ms since 1970-01-01 UTC, for stored values."""
    return time.time_ns() // 1_000_000


#: Returns the monotonic time in s, for timeouts and measurements.
monotonic_s: Final = time.monotonic
