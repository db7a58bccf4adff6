"""Each Python on the hosts imports this when it starts: `time` is ten minutes ahead while the host has a file `ahead`.

Python only: a namespace has no wall clock of its own, so what the JVM and the kernel say stays right.
"""

import os
import time
from collections.abc import Callable

#: In FOLDER of network.py.
_FILE = f"/mnt/ahead.{os.environ.get('SPARK_LOCAL_IP')}"


def _ahead(clock: Callable[[], float], by: float) -> Callable[[], float]:
    return lambda: clock() + by * os.path.exists(_FILE)


time.time = _ahead(time.time, 600)
time.time_ns = _ahead(time.time_ns, 600_000_000_000)  # type: ignore[assignment]
