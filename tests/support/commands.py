"""The command spark-bull while it runs, in a terminal or not."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]
#: Environment variables that would override the terminal.
_SAYING = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


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
        return self.text.split("\n")[:-1]

    def interrupt(self, number: int = signal.SIGINT) -> int:
        self.send(number)
        return self.wait()

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        status = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return status


@contextmanager
def running_command(
    *arguments: str, terminal: bool = False, columns: int = 120, typed: str = ""
) -> Iterator[RunningCommand]:
    """Starts `spark-bull` with these arguments, its output in a pipe or a terminal. typed: input in the terminal."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    given: dict[str, Any] = {}
    environment = os.environ | {"TERM": "xterm", "COLUMNS": str(columns)}
    if terminal:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        given = {"stdin": theirs, "stderr": theirs}
        environment = {name: value for name, value in environment.items() if name not in _SAYING}
    command = [sys.executable, "-m", "spark_bull.ops.cli", *arguments]
    process = subprocess.Popen(command, stdout=theirs, cwd=ROOT, env=environment, **given)
    os.close(theirs)
    if typed:
        os.write(ours, typed.encode())
    try:
        yield RunningCommand(process, ours)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
