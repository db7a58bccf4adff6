"""Waiting for effects of other threads, processes or servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Time limit of all waits, s. It is no statement about speed, it only ends tests that hang.
PATIENCE_S = 600.0


def wait_until(condition: Callable[[], T], what: str, timeout: float = PATIENCE_S) -> T:
    """Polls until the condition is truthy, and returns its value. `what` names the condition in the error."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s for {what}; last seen: {found!r}")
        time.sleep(0.02)
    return found
