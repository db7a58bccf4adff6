"""What is watched while something runs: another client's PING, the memory of processes, the scripts' times."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PAUSE_S = 0.001


@dataclass
class Pings:
    """Answer times of PING in ms, filled when the watch ends."""

    p50: float = 0.0
    p99: float = 0.0
    longest: float = 0.0
    count: int = 0


@contextmanager
def pinged(port: int) -> Iterator[Pings]:
    """Another client, in a process of its own, sends PING all the while."""
    prober = subprocess.Popen([sys.executable, __file__, str(port)], stdout=subprocess.PIPE, text=True)
    assert prober.stdout is not None
    prober.stdout.readline()
    pings = Pings()
    try:
        yield pings
    finally:
        prober.send_signal(signal.SIGTERM)
        pings.__dict__.update(json.loads(prober.communicate(timeout=60)[0]))


def ping_until_told(port: int) -> None:
    """The prober's main: PINGs until SIGTERM, once at least, then prints what came."""
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print("ready", flush=True)
        times: list[float] = []
        while not (told and times):
            sent = time.perf_counter()
            connection.sendall(b"PING\r\n")
            connection.recv(64)
            times.append((time.perf_counter() - sent) * 1000)
            time.sleep(PAUSE_S)
    times.sort()
    count = len(times)
    shown = Pings(times[count // 2], times[int(count * 0.99)], times[-1], count)
    print(json.dumps(shown.__dict__))


@dataclass
class Memory:
    """The most memory that was resident at a time, MiB: the driver's JVM, and all Python workers together."""

    jvm: float = 0.0
    python: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)


@contextmanager
def memory_watched(parent: int) -> Iterator[Memory]:
    """Samples `parent` and the processes below it four times a second."""
    memory = Memory()
    watcher = threading.Thread(target=_watch, args=(parent, memory), daemon=True)
    watcher.start()
    try:
        yield memory
    finally:
        memory._stop.set()
        watcher.join()


def _watch(parent: int, memory: Memory) -> None:
    while not memory._stop.wait(0.25):
        jvm = python = 0.0
        for pid in (parent, *below(parent)):
            name, proportional = memory_of(pid)
            if name == "java":
                jvm += proportional
            elif name.startswith("python"):
                python += proportional
        memory.jvm, memory.python = max(memory.jvm, jvm), max(memory.python, python)


def below(parent: int) -> list[int]:
    found, ask = [], [parent]
    while ask:
        pid = ask.pop()
        try:
            children = [
                int(child)
                for task in Path(f"/proc/{pid}/task").iterdir()
                for child in (task / "children").read_text().split()
            ]
        except OSError:
            continue
        found += children
        ask += children
    return found


def memory_of(pid: int) -> tuple[str, float]:
    """The name of a process and its share of memory in MiB: pages that forks have in common count once."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return name, int(line.split()[1]) / 1024
    except OSError:
        pass
    return "", 0.0


if __name__ == "__main__":
    ping_until_told(int(sys.argv[1]))
