"""Backoff formulas of the three dialects: the delay between a failed attempt and the next one."""

from __future__ import annotations

import math
from random import random


def fixed_ms(delay: float, jitter: float = 0) -> int:
    """A constant delay, reduced by a random part of up to `jitter` (0 to 1)."""
    return _jittered(delay, jitter)


def bull_exponential_ms(delay: float, attempts_made: int) -> int:
    """(2^n - 1) * delay after the n-th attempt, rounded half up as in JavaScript: Bull 1 to 4."""
    return round_half_up((2**attempts_made - 1) * delay)


def bullmq_exponential_ms(delay: float, attempts_made: int, jitter: float = 0) -> int:
    """2^(n-1) * delay after the n-th attempt, rounded half up as in JavaScript: BullMQ."""
    return _jittered(round_half_up(2 ** (attempts_made - 1) * delay), jitter)


def _jittered(delay: float, jitter: float) -> int:
    if jitter <= 0:
        return int(delay)
    return math.floor(random() * delay * jitter + delay * (1 - jitter))


def round_half_up(value: float) -> int:
    return math.floor(value + 0.5)
