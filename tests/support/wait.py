"""Waiting for effects of other threads, processes or servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Time limit of all waits, s. It is no statement about speed, it only ends tests that hang.
PATIENCE_S = 600.0
#: The shortest and the longest time between two looks, s: a wait that looks often takes CPU from what it waits for.
OFTEN_S, SELDOM_S = 0.01, 0.1


def wait_until(condition: Callable[[], T], what: str, timeout: float = PATIENCE_S) -> T:
    """Polls until the condition is truthy, and returns its value. `what` names the condition in the error."""
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"waited {timeout:g} s for {what}; last seen: {found!r}")
        time.sleep(min(max(waited / 20, OFTEN_S), SELDOM_S))
    return found
