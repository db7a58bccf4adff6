"""Backoff formulas of the three dialects: the delay between a failed attempt and the next one."""

from __future__ import annotations

import math
from random import random
from typing import Final

#: The delay of an `exponential` backoff that stands in for a type that is not known, if it has none, ms.
DEFAULT_MS: Final = 1_000


def bull_exponential_ms(delay: float, attempts_made: int) -> int:
    """(2^n - 1) * delay after the n-th attempt, rounded half up as in JavaScript: Bull 1 to 4."""
    return round_half_up((2**attempts_made - 1) * delay)


def bullmq_exponential_ms(delay: float, attempts_made: int, jitter: float = 0) -> int:
    """2^(n-1) * delay after the n-th attempt, rounded half up as in JavaScript: BullMQ."""
    return fixed_ms(round_half_up(2 ** (attempts_made - 1) * delay), jitter)


def fixed_ms(delay: float, jitter: float = 0) -> int:
    """A constant delay, reduced by a random part of up to `jitter` (0 to 1)."""
    if jitter <= 0:
        return int(delay)
    return math.floor(random() * delay * jitter + delay * (1 - jitter))


def round_half_up(value: float) -> int:
    return math.floor(value + 0.5)
