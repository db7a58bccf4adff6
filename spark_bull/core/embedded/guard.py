"""Kills a process and deletes its folder when the program that started it exits, for any reason."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final
from weakref import WeakSet

#: Reads the id of the process to kill: the last line counts, an empty line means none. `bye` ends the guard. End of
#: input without `bye` means that the program has exited.
_SCRIPT: Final = """
pid=
while read -r line; do
  [ "$line" = bye ] && exit
  pid=$line
done
[ -n "$pid" ] && kill -9 "$pid"
rm -rf "$1"
"""
_GUARDS: Final[WeakSet[Guard]] = WeakSet()


class Guard:
    """A shell that waits until this program exits, then kills a process and deletes its folder.

    It reads a pipe that the system closes when the program exits, also after `kill -9` or when a notebook's kernel is
    restarted. Forks of the program close their copy of the pipe, so that they do not keep the process alive.
    """

    def __init__(self, folder: Path) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "spark-bull-guard", str(folder)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Signals to the process group, such as Ctrl-C, must not reach the guard.
            start_new_session=True,
        )
        _GUARDS.add(self)

    def watch(self, pid: int | None) -> None:
        """Sets the process to kill; None: no process."""
        self._write("" if pid is None else str(pid))

    def dismiss(self) -> None:
        """Ends the guard without killing the process."""
        self._write("bye")
        self.close_pipe()
        self._shell.wait()

    def close_pipe(self) -> None:
        """Closes this process' end of the pipe."""
        if self._shell.stdin is not None:
            self._shell.stdin.close()

    def _write(self, line: str) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(f"{line}\n".encode())
            self._shell.stdin.flush()
        except BrokenPipeError:
            pass  # The guard was killed.


def _close_all_pipes() -> None:
    for guard in list(_GUARDS):
        guard.close_pipe()


os.register_at_fork(after_in_child=_close_all_pipes)
