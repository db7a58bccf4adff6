"""A Spark driver in a separate process, which is killed with its JVM and their Python processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
Driver = TypeVar("Driver", bound="DriverProcess")


class DriverProcess:
    """The driver of a module, which gets `plan` as JSON; its output is written to a file."""

    def __init__(self, log: Path, module: str, **plan: Any) -> None:
        self._log = log
        command = [sys.executable, "-m", module, json.dumps(plan)]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, start_new_session=True, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def pid(self) -> int:
        """Its process id, which is that of the session of all its processes."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def check(self) -> None:
        """Fails when the driver has ended."""
        code = self._process.poll()
        assert code is None, f"the driver ended with {code}:\n{self.output()}"

    def kill(self) -> None:
        """Kills the driver, its JVM and their Python processes, and waits until they have ended."""
        wait_until(self._have_been_killed, "the driver's processes to end")
        self._process.wait()

    def __enter__(self: Driver) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _have_been_killed(self) -> bool:
        """Whether none is left of its processes; kills them, and those that have started since the last call."""
        groups = self._groups()
        for group in groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        return not groups

    def _groups(self) -> set[int]:
        """The running process groups of its session; Spark starts Python processes in a separate group."""
        command = ["ps", "-s", str(self._process.pid), "-o", "stat=,pgid="]
        listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        processes = [line.split() for line in listed.splitlines()]
        return {int(group) for state, group in processes if not state.startswith("Z")}

    def output(self) -> str:
        """The end of its output."""
        return self._log.read_text(errors="replace")[-6000:]
