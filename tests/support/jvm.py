"""Options of the JVMs that tests start."""

from __future__ import annotations

from typing import Final

#: For a JVM that runs only some seconds, as a driver or an executor.
JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
