"""Options of the JVMs that tests start."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: The classes of Spark, archived by `make test`; a JVM with another version or class path does not use them.
_ARCHIVE: Final = Path(__file__).parents[2] / ".venv" / "spark-classes.jsa"
_QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_ARCHIVED: Final = f" -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable" if _ARCHIVE.exists() else ""

#: For a JVM that runs only some seconds, as a driver or an executor.
JVM_OPTIONS: Final = _QUICK_START + _ARCHIVED
