"""Python processes forked from one that has imported their modules.

Python and these imports take more CPU to start than what the processes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

CONTEXT = get_context("forkserver")
MODULES = ("dying_commit", "dying_worker", "dying_write", "killed_workers", "room_writer")
CONTEXT.set_forkserver_preload([f"tests.support.{name}" for name in MODULES])


def exit_code(run: Callable[..., object], *arguments: Any) -> int:
    """Runs a function in a process of its own; returns its exit status, or minus the signal that ended it."""
    process = CONTEXT.Process(target=run, args=arguments)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


@contextmanager
def killed(run: Callable[..., object], *arguments: Any) -> Iterator[None]:
    """Runs a function in a process of its own, which is killed at the end of the block."""
    process = CONTEXT.Process(target=run, args=arguments)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()
