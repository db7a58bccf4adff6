"""How long a failed attempt waits before the next one: the formulas of the three dialects."""

from __future__ import annotations

import math
from random import random


def fixed_ms(delay: float, jitter: float = 0) -> int:
    """The same delay each time; with `jitter` (0..1) a random part of it is taken away."""
    return _jittered(delay, jitter)


def bull_exponential_ms(delay: float, attempts_made: int) -> int:
    """(2^n - 1) * delay after the n-th attempt, rounded half up as JavaScript does: Bull 1 to 4."""
    return round_half_up((2**attempts_made - 1) * delay)


def bullmq_exponential_ms(delay: float, attempts_made: int, jitter: float = 0) -> int:
    """2^(n-1) * delay after the n-th attempt, rounded half up as JavaScript does: BullMQ."""
    return _jittered(round_half_up(2 ** (attempts_made - 1) * delay), jitter)


def _jittered(delay: float, jitter: float) -> int:
    if jitter <= 0:
        return int(delay)
    return math.floor(random() * delay * jitter + delay * (1 - jitter))


def round_half_up(value: float) -> int:
    return math.floor(value + 0.5)
