"""Ends a process that a processor has forked when it leaves the processor: the slot and its jobs are the parent's."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

#: How many forks this process is away from the program; os.getpid is a system call, which takes longer.
_generation = 0


def _count() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_count)


def generation() -> int:
    """A number that is larger in a fork of this process."""
    return _generation


def in_this_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns function(*arguments). A fork of this process that would return or raise, too, ends instead."""
    before = _generation
    try:
        value = function(*arguments)
    except BaseException as error:
        end_fork(before, error)
        raise
    if _generation != before:
        end_fork(before)
    return value


def end_fork(before: int, error: BaseException | None = None) -> None:
    """Ends a process that was forked since that generation: with status 0, the one of sys.exit, or 1 after an error."""
    if _generation == before:
        return
    status = 1
    try:
        if error is None:
            status = 0
        elif not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif error.code is None or isinstance(error.code, int):
            status = (error.code or 0) & 0xFF
        else:
            print(error.code, file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # What runs at the end of a program would end what belongs to the slot.
        os._exit(status)
