"""For how long the server keeps what it has found by scanning all keys of the database."""

from __future__ import annotations

from typing import Final

#: The shortest time, s, and how many times as long as the scan has taken.
_LEAST_S: Final = 15.0
_TIMES: Final = 20


def kept_s(took_s: float) -> float:
    """The time, s, for a scan that has taken `took_s`: Redis scans for a twentieth of the time at most."""
    return max(_LEAST_S, _TIMES * took_s)
