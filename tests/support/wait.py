"""Waiting for something that another thread, process or server does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: How long tests wait for anything. It says nothing about speed: it only ends what hangs.
PATIENCE_S = 600.0


def wait_until(condition: Callable[[], T], what: str, timeout: float = PATIENCE_S) -> T:
    """Poll until the condition is truthy, and return what it returned. `what` says what is waited for."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s for {what}; last seen: {found!r}")
        time.sleep(0.02)
    return found
