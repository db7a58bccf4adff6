"""Python processes forked from one that has imported their modules.

Python and these imports take more CPU to start than what the processes do.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [f"tests.support.{name}" for name in ("dying_commit", "dying_worker", "dying_write", "room_writer")]
)


def exit_code(run: Callable[..., object], *arguments: Any) -> int:
    """Runs a function in a process of its own; returns its exit status, or minus the signal that ended it."""
    process = CONTEXT.Process(target=run, args=arguments)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode
