"""Probes beside a measurement: PING times of another client, CPU time of processes."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PAUSE_S = 0.001
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: prctl(2): orphaned descendants become children of the calling process.
_PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Pings:
    """PING round-trip times in ms, and the CPU time of the prober in s, set when the block ends."""

    p50: float = 0.0
    p99: float = 0.0
    longest: float = 0.0
    count: int = 0
    cpu_s: float = 0.0


@contextmanager
def pinged(port: int) -> Iterator[Pings]:
    """Sends PING from another process during the block."""
    prober = subprocess.Popen([sys.executable, __file__, str(port)], stdout=subprocess.PIPE, text=True)
    assert prober.stdout is not None
    prober.stdout.readline()
    pings = Pings()
    try:
        yield pings
    finally:
        prober.send_signal(signal.SIGTERM)
        pings.__dict__.update(json.loads(prober.communicate(timeout=60)[0]))


def ping_until_sigterm(port: int) -> None:
    """Main function of the prober: sends PING until SIGTERM, at least once, then prints the times as JSON."""
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print("ready", flush=True)
        times: list[float] = []
        while not (signals and times):
            sent = time.perf_counter()
            connection.sendall(b"PING\r\n")
            connection.recv(64)
            times.append((time.perf_counter() - sent) * 1000)
            time.sleep(PAUSE_S)
    times.sort()
    count = len(times)
    pings = Pings(times[count // 2], times[int(count * 0.99)], times[-1], count, time.process_time())
    print(json.dumps(pings.__dict__))


@dataclass(frozen=True)
class Cpu:
    """CPU time used so far, s: by JVMs, by Python processes with those that have ended, and by Node."""

    jvm: float
    python: float
    node: float

    def __sub__(self, other: Cpu) -> Cpu:
        return Cpu(self.jvm - other.jvm, self.python - other.python, self.node - other.node)


def adopt_orphans() -> None:
    """Keeps processes whose parent has ended among the descendants of this one, so that `cpu_of` counts them.

    They are not waited for: a process that has ended still shows its CPU time.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def cpu_of(parent: int) -> Cpu:
    """Returns the CPU time of `parent` and its descendants; see adopt_orphans."""
    jvm = python = node = 0.0
    for pid in (parent, *descendants(parent)):
        try:
            name, _, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        own, of_ended = (sum(map(int, fields.split()[at : at + 2])) / TICKS_PER_S for at in (11, 13))
        if name == "java":
            # Processes that Spark has started and that have ended are Python's.
            jvm, python = jvm + own, python + of_ended
        elif name.startswith("python"):
            python += own + of_ended
        elif name == "node":
            node += own
    return Cpu(jvm, python, node)


def cpu_of_process(pid: int) -> float:
    """Returns the CPU time of a running process so far, in s, to the nanosecond.

    The slow log of Redis has the wall time of a script, which is longer on a busy machine: Redis waits for a core
    meanwhile.
    """
    # The clock id of a process, as clock_getcpuclockid(3) makes it.
    return time.clock_gettime((~pid << 3) | 2)


def descendants(parent: int) -> list[int]:
    found, ask = [], [parent]
    while ask:
        children = [int(child) for task in Path(f"/proc/{ask.pop()}/task").glob("*") for child in _children(task)]
        found += children
        ask += children
    return found


def _children(task: Path) -> list[str]:
    """Ids of the processes that a thread has started; none if it has ended meanwhile."""
    try:
        return (task / "children").read_text().split()
    except OSError:
        return []


if __name__ == "__main__":
    ping_until_sigterm(int(sys.argv[1]))
