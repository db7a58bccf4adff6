"""Several hosts in network namespaces: `make hosts`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import need
from tests.proof.hosts.__main__ import can_hold
from tests.support.wait import wait_until

COMMAND = [sys.executable, "-m", "tests.proof.hosts", "--fault", "executor host cut from Redis, 5 s"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    need(can_hold(), "needs Linux, root and network namespaces")


@pytest.mark.soak
def test_all_verbs_work_on_two_hosts_and_a_cut_host_loses_nothing() -> None:
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all verbs: dispatch, inspect, process in slots, process in batches, collect" in done.stderr
    assert "| executor host cut from Redis, 5 s | " in done.stdout


@pytest.mark.soak
def test_a_killed_holder_leaves_no_process_and_no_interface() -> None:
    before = _interfaces()
    holder = subprocess.Popen(COMMAND, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    with holder:
        assert holder.stderr is not None
        assert "two worker hosts have registered" in holder.stderr.readline()
        (child,) = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        namespace = os.readlink(f"/proc/{child}/ns/pid")
        assert len([*_processes(namespace)]) > len(["holder", "redis", "master", "worker", "worker"])
        holder.send_signal(signal.SIGKILL)
        wait_until(lambda: not [*_processes(namespace)], "all processes of the hosts to end")
    assert _interfaces() == before


def _processes(namespace: str) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns" / "pid") == namespace:
                yield process.name
        except (FileNotFoundError, PermissionError):
            continue


def _interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}
