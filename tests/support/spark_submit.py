"""spark-submit and its JVMs: their options, and a Python without spark_bull."""

from __future__ import annotations

import os
import shlex
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

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
