"""The CPU time of a server.

The slow log has the wall time of a script, which is longer on a busy machine: Redis waits for a core meanwhile.
"""

from __future__ import annotations

import time


def cpu_of_process(pid: int) -> float:
    """The CPU time of a running process on this machine so far, in s, to the nanosecond."""
    # The clock id of a process, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | 2)
