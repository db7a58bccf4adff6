"""The command `spark-bull` as a process that runs until it is interrupted, whose output a test reads meanwhile."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]


class RunningCommand:
    """A process and what it has printed so far; in a terminal, both outputs are one."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self._process = process
        self._printed = b""
        self._reader = threading.Thread(target=self._read, args=[output], daemon=True)
        self._reader.start()

    def _read(self, output: int) -> None:
        # Linux reports the end of the process in a terminal as an error.
        with suppress(OSError), open(output, "rb", buffering=0) as printed:
            while part := printed.read(65_536):
                self._printed += part

    @property
    def text(self) -> str:
        return self._printed.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        """The complete lines."""
        return self.text.split("\n")[:-1]

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def interrupt(self, number: int = signal.SIGINT) -> int:
        """Sends a signal, and returns the exit status."""
        self.send(number)
        return self.wait()

    def send(self, number: int) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Waits for its end; returns the exit status."""
        status = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return status


@contextmanager
def running_command(*arguments: str, terminal: bool = False) -> Iterator[RunningCommand]:
    """Starts `spark-bull` with these arguments, its output in a pipe or a terminal."""
    command = [sys.executable, "-m", "spark_bull.cli", *arguments]
    ours, theirs = pty.openpty() if terminal else os.pipe()
    given: dict[str, Any] = {"stdin": theirs, "stderr": theirs} if terminal else {}
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdout=theirs, cwd=ROOT, env=environment, **given)
    os.close(theirs)
    try:
        yield RunningCommand(process, ours)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
