"""Tells apart a SIGINT that the process received, which ends the slot, and a KeyboardInterrupt that a processor raised.

The latter fails one job, as any other exception does. A process that a processor has forked ends when it leaves the
processor: the slot and its jobs are the parent's.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import Final, TypeVar

_received: Final = Event()

Argument = TypeVar("Argument")
Value = TypeVar("Value")


@contextmanager
def recording_interrupts() -> Iterator[None]:
    """Records a SIGINT in this block, then calls the previous handler. Has no effect outside the main thread."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return

    def record(number: int, frame: FrameType | None) -> None:
        _received.set()
        previous(number, frame)

    _received.clear()
    signal.signal(signal.SIGINT, record)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def raise_if_interrupted() -> None:
    """Raises KeyboardInterrupt if the process has received a SIGINT, even if the first one was swallowed."""
    if _received.is_set():
        _received.clear()
        raise KeyboardInterrupt


class Terminated(KeyboardInterrupt):
    """The process got SIGTERM, which ends a command as Ctrl-C does."""


@contextmanager
def sigterm_raises(error: BaseException) -> Iterator[None]:
    """Makes SIGTERM raise this error in this block, so that `with` and `finally` take effect.

    Has no effect outside the main thread, or if the program handles SIGTERM itself.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end_program(_number: int, _frame: FrameType | None) -> None:
        raise error

    signal.signal(signal.SIGTERM, end_program)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Interrupted(SystemExit, KeyboardInterrupt):
    """A wait was interrupted by Ctrl-C. `except KeyboardInterrupt` catches it.

    Otherwise it ends the program with status 130, as after SIGINT in shells, and without a trace.
    """

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGINT)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Makes Ctrl-C raise Interrupted in this block, and in an interactive Python, which goes on, KeyboardInterrupt.

    The handler of PySpark would cancel all jobs of Spark first, and so kill the slots of a worker. Handlers of the
    program's own stay.
    """
    previous = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    is_pyspark = str(getattr(previous, "__module__", "")).startswith("pyspark.")
    if is_main and is_pyspark:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as error:
        if hasattr(sys, "ps1") or isinstance(error, Terminated):
            raise
        raise Interrupted from None
    finally:
        if is_main and is_pyspark:
            signal.signal(signal.SIGINT, previous)


@contextmanager
def killed_by_interrupts() -> Iterator[None]:
    """Lets Ctrl-C end the process at once in this block. Has no effect outside the main thread."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is None:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


#: How many forks this process is away from the program; os.getpid is a system call, which takes longer.
_generation = 0


def _count() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_count)


def generation() -> int:
    """A number that is larger in a fork of this process."""
    return _generation


def in_this_process(function: Callable[[Argument], Value], argument: Argument) -> Value:
    """Returns function(argument). A fork of this process that would return or raise, too, ends instead."""
    before = _generation
    try:
        value = function(argument)
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
