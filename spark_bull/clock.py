"""Two clocks with two names: one for storage, one for waiting."""

from __future__ import annotations

import time
from typing import Final

#: The scores of delayed jobs are ms since 1970 * 4096, and must stay below 2^53.
LAST_ETA_MS: Final = 2**53 // 4096 - 1


def epoch_ms() -> int:
    """Milliseconds since 1970-01-01 UTC, for what is stored."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds on a clock that never jumps, for what is waited for or measured."""
    return time.monotonic()
