"""spark-submit on a cluster of this machine, and a driver that it starts once for several scripts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tests.support.jvm import JVM_OPTIONS, LOG_OPTION
from tests.support.wait import PATIENCE_S

COMMAND = Path(sysconfig.get_path("purelib")) / "pyspark" / "bin" / "spark-submit"
_RUNNER = Path(__file__).with_name("script_runner.py")


@dataclass(frozen=True)
class SparkSubmit:
    """Starts programs in a folder, with the variables of an environment. What they log is in the file `log` there.

    files: for --py-files. settings: for --conf.
    """

    master: str
    folder: Path
    environment: Mapping[str, str]
    files: tuple[Path, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    def start(self, *arguments: str, prints: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """Starts a program with its arguments. prints: where its output goes, and what Python logs on the driver."""
        settings = {"spark.ui.enabled": "false", "spark.executor.extraJavaOptions": JVM_OPTIONS, **self.settings}
        command = [str(COMMAND), "--master", self.master, "--driver-java-options", LOG_OPTION]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        if self.files:
            command += ["--py-files", ",".join(map(str, self.files))]
        with self._log.open("a") as log:
            return subprocess.Popen(
                [*command, *arguments],
                cwd=self.folder,
                env=self.environment,
                stdout=prints,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    @property
    def log(self) -> str:
        return self._log.read_text()

    @contextmanager
    def driver(self) -> Iterator[SubmittedDriver]:
        """Starts a driver that runs scripts one after the other, in one Spark session."""
        with socket.create_server(("127.0.0.1", 0)) as server, self._log.open("a") as log:
            server.settimeout(PATIENCE_S)
            with self.start(str(_RUNNER), str(server.getsockname()[1]), prints=log.fileno()) as process:
                try:
                    connection, _ = server.accept()
                    connection.settimeout(PATIENCE_S)
                    with connection, connection.makefile("rw") as lines:
                        driver = SubmittedDriver(self, process, lines)
                        yield driver
                        connection.shutdown(socket.SHUT_RDWR)
                    if not driver.is_busy:
                        process.wait(PATIENCE_S)
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)


class SubmittedDriver:
    """Runs scripts in its session."""

    def __init__(self, submitted: SparkSubmit, process: subprocess.Popen[str], lines: TextIO) -> None:
        self.submitted = submitted
        self._process = process
        self._lines = lines
        #: Whether a script may still run.
        self.is_busy = False

    def run(self, script: Path, *arguments: str) -> str:
        """Runs a script and returns what it prints."""
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
        assert code == 0, printed[-2000:] + self.submitted.log[-4000:]
        return str(printed)

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None
