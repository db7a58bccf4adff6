"""Waiting for something that another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float = 10, what: str = "the condition") -> T:
    """Poll until the condition is truthy, and return what it returned."""
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s for {what}; last seen: {found!r}")
        time.sleep(0.02)
    return found
