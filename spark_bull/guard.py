"""Ends a process, and deletes its folder, when the program that started it is gone, however it went."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final
from weakref import WeakSet

#: Reads the id of the process to end: the last line counts, an empty one means none. `bye` dismisses the guard; the end
#: of its input without that means that whoever could have written it is gone.
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
    """A shell that waits at the end of a pipe for the end of this program, then ends a process and its folder.

    The system closes the pipe with the program, also after `kill -9` or when a notebook's kernel is restarted. A fork
    of the program lets go of it, so that one that lives on keeps nothing alive.
    """

    def __init__(self, folder: Path) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "spark-bull-guard", str(folder)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # What ends the program by a signal to its group, such as Ctrl-C, is to leave the guard alone.
            start_new_session=True,
        )
        _GUARDS.add(self)

    def watch(self, pid: int | None) -> None:
        """From now on this process, or none, is the one to end."""
        self._tell("" if pid is None else str(pid))

    def dismiss(self) -> None:
        """Ends the guard, and nothing else."""
        self._tell("bye")
        self.let_go()
        self._shell.wait()

    def let_go(self) -> None:
        """Closes this process' end of the pipe."""
        if self._shell.stdin is not None:
            self._shell.stdin.close()

    def _tell(self, line: str) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(f"{line}\n".encode())
            self._shell.stdin.flush()
        except BrokenPipeError:
            pass  # Somebody has killed it.


def _let_go_of_all() -> None:
    for guard in list(_GUARDS):
        guard.let_go()


os.register_at_fork(after_in_child=_let_go_of_all)
