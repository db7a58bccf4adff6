"""spark-submit and its JVMs: their options, a Python without spark_bull, and a driver for several scripts."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sysconfig
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from tests.support.wait import PATIENCE_S
from tools.compiled_pyspark import FILE, LINE

_ROOT: Final = Path(__file__).parents[2]
#: The classes of Spark, archived by `make test`; a JVM with another version or class path does not use them.
_ARCHIVE: Final = _ROOT / ".venv" / "spark-classes.jsa"
_QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_ARCHIVED: Final = f" {shlex.quote(f'-XX:SharedArchiveFile={_ARCHIVE}')} -Xlog:disable" if _ARCHIVE.exists() else ""

#: Few collections of the heap; programs, as chmod for each file, start without a helper before them.
_LITTLE_WORK: Final = "-Xmn256m -XX:MetaspaceSize=256m -XX:-UsePerfData -Djdk.lang.Process.launchMechanism=VFORK"

#: For a JVM that runs only some seconds, as an executor.
JVM_OPTIONS: Final = _QUICK_START + _ARCHIVED

#: Settings of Spark: without a web server, and with streams that look less often for new data.
_SETTINGS: Final = "-Dspark.ui.enabled=false -Dspark.sql.streaming.pollingDelay=100ms"
#: For the JVM of a driver.
DRIVER_OPTIONS: Final = f"{JVM_OPTIONS} {_LITTLE_WORK} {_SETTINGS}"

#: For the JVM in which spark-submit makes up the command of the driver, with another class path.
LAUNCHER_OPTIONS: Final = _QUICK_START

#: The log of conf/. SPARK_CONF_DIR would change the class path, and so keep the JVM from using the archived classes.
LOG_OPTION: Final = shlex.quote(f"-Dlog4j2.configurationFile={_ROOT / 'conf' / 'log4j2.properties'}")

#: Arguments of spark-submit for the settings of conf/.
CONF_ARGUMENTS: Final = (
    *("--properties-file", str(_ROOT / "conf" / "spark-defaults.conf")),
    *("--driver-java-options", LOG_OPTION),
)


#: Environment variables that could make the package available.
_TELLING = ("PYTHONPATH", "SPARK_CONF_DIR", "PYSPARK_DRIVER_PYTHON")


def bare_python(folder: Path) -> Path:
    """Creates a virtual environment in the folder, and returns its interpreter.

    The packages of this Python are on its path, but Python does not read .pth files there, such as the file of an
    editable install of this checkout.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    library = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    installed = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (Path(library) / "installed.pth").write_text("\n".join(installed) + "\n")
    (Path(library) / FILE).write_text(LINE)
    return python


def bare_environment(python: Path) -> Mapping[str, str]:
    """Environment variables for Spark with that Python, for driver and workers."""
    kept = {name: value for name, value in os.environ.items() if name not in _TELLING}
    return {**kept, "PYSPARK_PYTHON": str(python), "SPARK_HOME": str(Path(sysconfig.get_path("purelib")) / "pyspark")}


COMMAND = Path(sysconfig.get_path("purelib")) / "pyspark" / "bin" / "spark-submit"
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
