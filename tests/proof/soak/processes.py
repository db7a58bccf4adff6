"""The processes of this machine, with their sessions and memory."""

from __future__ import annotations

import subprocess
from typing import NamedTuple


class Process(NamedTuple):
    """age: s. size: resident memory, bytes."""

    pid: int
    session: int
    age: int
    size: int
    command: str


def processes() -> list[Process]:
    command = ["ps", "-eo", "pid=,sess=,etimes=,rss=,comm="]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split(None, 4) for line in lines]
    return [Process(int(pid), int(sess), int(age), int(rss) * 1024, name) for pid, sess, age, rss, name in rows]
