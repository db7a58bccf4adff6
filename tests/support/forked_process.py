"""Python processes forked from one that has imported their modules.

Python and these imports take more CPU to start than what the processes do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

CONTEXT = get_context("forkserver")
MODULES = (
    "dying_commit",
    "dying_worker",
    "dying_write",
    "guarding",
    "killed_workers",
    "room_writer",
    "terminated_slot",
)
CONTEXT.set_forkserver_preload([f"tests.support.{name}" for name in MODULES])


class ForkedProcess:
    """Runs a function of a module of tests/support; it is killed at the end of the block, if it still runs."""

    def __init__(self, run: Callable[..., object], *arguments: Any) -> None:
        self._process = CONTEXT.Process(target=run, args=arguments)
        self._process.start()

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status, or minus the signal that ended the process; None if it runs longer than `timeout`, s."""
        self._process.join(timeout)
        return self._process.exitcode

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


def exit_code(run: Callable[..., object], *arguments: Any) -> int:
    """Runs the function to its end; returns the exit status, or minus the signal that ended it."""
    code = ForkedProcess(run, *arguments).wait()
    assert code is not None
    return code
