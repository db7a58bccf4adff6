"""Options of the JVMs that tests start."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

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

#: For the JVM in which spark-submit makes up the command of the driver. It has another class path.
LAUNCHER_OPTIONS: Final = _QUICK_START

#: The log of conf/. SPARK_CONF_DIR would change the class path, and so keep the JVM from using the archived classes.
LOG_OPTION: Final = shlex.quote(f"-Dlog4j2.configurationFile={_ROOT / 'conf' / 'log4j2.properties'}")

#: Arguments of spark-submit for the settings of conf/.
CONF_ARGUMENTS: Final = (
    *("--properties-file", str(_ROOT / "conf" / "spark-defaults.conf")),
    *("--driver-java-options", LOG_OPTION),
)
