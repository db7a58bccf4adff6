"""A driver for several scripts, which spark-submit starts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.support.spark_submit import COMMAND, JVM_OPTIONS, LOG_OPTION
from tests.support.wait import PATIENCE_S

_RUNNER = Path(__file__).with_name("script_runner.py")


@contextmanager
def submitted_driver(
    master: str,
    folder: Path,
    environment: Mapping[str, str],
    files: tuple[Path, ...] = (),
    settings: Mapping[str, str] | None = None,
) -> Iterator[SubmittedDriver]:
    """Starts a driver in a folder, with the variables of an environment. What it logs is in the file `log` there.

    files: for --py-files. settings: for --conf.
    """
    own = {"spark.ui.enabled": "false", "spark.executor.extraJavaOptions": JVM_OPTIONS, **(settings or {})}
    command = [str(COMMAND), "--master", master, "--driver-java-options", LOG_OPTION]
    command += [word for name, value in own.items() for word in ("--conf", f"{name}={value}")]
    command += ["--py-files", ",".join(map(str, files))] if files else []
    with socket.create_server(("127.0.0.1", 0)) as server, (folder / "log").open("a") as log:
        server.settimeout(PATIENCE_S)
        command += [str(_RUNNER), str(server.getsockname()[1])]
        started = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
        with started as process:
            try:
                connection, _ = server.accept()
                connection.settimeout(PATIENCE_S)
                with connection, connection.makefile("rw") as lines:
                    driver = SubmittedDriver(folder, process, lines)
                    yield driver
                    connection.shutdown(socket.SHUT_RDWR)
                if not driver.is_busy:
                    process.wait(PATIENCE_S)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


class SubmittedDriver:
    """Runs scripts one after the other, in one Spark session."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], lines: TextIO) -> None:
        self.folder, self._process, self._lines = folder, process, lines
        #: Whether a script may still run.
        self.is_busy = False

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def run(self, script: Path, *arguments: str) -> str:
        self.begin(script, *arguments)
        return self.finish()

    def begin(self, script: Path, *arguments: str) -> None:
        """Lets a script begin, of which `finish` tells the end."""
        assert not self.is_busy, "the script of another test has not ended"
        self.is_busy = True
        print(json.dumps([str(script), *arguments]), file=self._lines, flush=True)

    def finish(self) -> str:
        """Waits until the script has ended, and returns what it has printed."""
        code, printed = json.loads(self._lines.readline() or '[1, "the driver ended"]')
        self.is_busy = False
        assert code == 0, printed[-2000:] + self.log[-4000:]
        return str(printed)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None
