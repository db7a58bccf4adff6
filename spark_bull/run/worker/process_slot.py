"""A slot of a worker that runs in a process of its own, which this program starts."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Final, NamedTuple

from spark_bull.core.error_text import described
from spark_bull.core.errors import SparkBullError
from spark_bull.core.threads import PollingThread
from spark_bull.run.slot.slot import run_slot
from spark_bull.run.slot.slot_plan import SlotPlan
from spark_bull.run.slot.slot_state import SetupFailed
from spark_bull.run.slot.status import slots_of
from spark_bull.run.worker.slot_group import SlotGroup

#: A fork of a program with threads may wait for ever for a lock that another thread held.
_SPAWN: Final = get_context("spawn")
#: Why a process may end before it runs its slot: it imports the program's module, which starts processes again.
_NO_GUARD: Final = "; does the program start under `if __name__ == '__main__':`?"
#: Interval at which a slot looks whether the program still runs, s.
_LOOK_S: Final = 1.0


class SlotProcessEnded(Exception):
    """The process of a slot has ended by an error or a signal."""


class _Error(NamedTuple):
    """Why a slot has ended, as its process says. is_of_setup: whether `setup` has failed."""

    text: str
    is_of_setup: bool


class _Started(NamedTuple):
    """A process, and where it says why it has ended."""

    process: SpawnProcess
    errors: Connection


class ProcessSlot(SlotGroup):
    """Runs one slot, and starts it again when it fails: what its process held is rescued when the locks expire."""

    def __init__(self, plan: SlotPlan, numbers: range, on_error: Callable[[], None]) -> None:
        super().__init__(plan, numbers, on_error)
        self._started: _Started | None = None

    def start(self) -> None:
        """Starts the process. Raises RuntimeError in a program that runs again when its module is imported."""
        # Not in the thread, where nobody would see the error.
        self._started = self._new_process()
        atexit.register(self.interrupt)
        super().start()

    def interrupt(self) -> None:
        """Lets the process return its jobs, if it has any, and end for good."""
        self._stopping.set()
        started = self._started
        if started is not None:
            started.process.terminate()

    def _run_slots(self) -> None:
        started = self._started or self._new_process()
        self._started = started
        started.process.join()
        self._started = None
        _raise_error(started, self._has_reported)
        atexit.unregister(self.interrupt)

    def _has_reported(self) -> bool:
        """Whether the process that was started last has begun to run the slot; also if Redis is away."""
        try:
            return any(map(self.has_started, slots_of(self._plan.handle, self._plan.worker)))
        except SparkBullError:
            return True

    def _new_process(self) -> _Started:
        errors, theirs = _SPAWN.Pipe(duplex=False)
        plan = pickle.dumps(replace(self._plan, run=self.restarts))
        process = _SPAWN.Process(target=_serve, args=(plan, self.numbers.start, theirs, os.getpid()))
        process.name = f"{self._plan.worker}-{self.numbers.start}"
        process.start()
        theirs.close()
        return _Started(process, errors)


def _raise_error(ended: _Started, has_reported: Callable[[], bool]) -> None:
    """Raises what has ended the process, unless the slot has stopped."""
    with ended.errors:
        error = _received(ended.errors)
    if error is not None:
        raise SetupFailed(error.text) if error.is_of_setup else SlotProcessEnded(error.text)
    status = ended.process.exitcode
    if status == 0:
        return
    if status is not None and status < 0:
        how = f"signal {signal.Signals(-status).name}"
    else:
        # None: another thread has read it.
        how = f"status {status}{'' if has_reported() else _NO_GUARD}"
    raise SlotProcessEnded(f"process {ended.process.pid} of a slot ended with {how}")


def _received(errors: Connection) -> _Error | None:
    try:
        return _Error(*errors.recv()) if errors.poll() else None
    except EOFError:
        return None


def _serve(plan: bytes, slot: int, errors: Connection, program: int) -> None:
    """Runs in the process: runs the slot."""
    # Ctrl-C reaches all processes of a terminal: the program ends this one in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with _ProgramWatch(program):
        try:
            run_slot(pickle.loads(plan), slot)
        except Exception as error:
            is_of_setup = isinstance(error, SetupFailed)
            errors.send(tuple(_Error(str(error) if is_of_setup else described(error), is_of_setup)))
            raise


class _ProgramWatch(PollingThread):
    """Ends this process, with the return of its jobs, when the program that has started it was killed."""

    def __init__(self, program: int) -> None:
        super().__init__("program-watch", _LOOK_S)
        self._program = program

    def poll(self) -> bool:
        if os.getppid() == self._program:
            return False
        os.kill(os.getpid(), signal.SIGTERM)
        return True
