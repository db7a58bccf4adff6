"""A program in a terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]
#: Environment variables that would override the terminal.
_SAYING = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Shown:
    """The output of a program on a terminal, without styles, and its exit code."""

    text: str
    code: int


def in_terminal(command: Sequence[str], *, columns: int = 80, typed: str = "") -> Shown:
    """Runs a program in a terminal; `typed` is the input of the user."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in _SAYING} | {"TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT) as running:
        os.close(theirs)
        os.write(ours, typed.encode())
        said = _all_of(ours)
        code = running.wait(PATIENCE_S)
    os.close(ours)
    return Shown(_STYLE.sub("", said.decode().replace("\r\n", "\n")), code)


def _all_of(terminal: int) -> bytes:
    """The output until the program ends, which Linux reports as an error."""
    said = b""
    with suppress(OSError):
        while part := os.read(terminal, 65_536):
            said += part
    return said
