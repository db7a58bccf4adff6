"""Several hosts in network namespaces, `make hosts`, and what its books would pass silently."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_bull.core.model.read_jobs import Job
from tests.conftest import need
from tests.proof.books import Cell
from tests.proof.hosts.__main__ import can_hold
from tests.proof.hosts.books import Books

#: Short ones; `make hosts` has all.
FAULTS = ("executor host cut from Redis, 5 s", "kill -9 of all Pythons of tasks", "Redis down, 15 s")
ROOT = Path(__file__).parents[2]


def a_job(n: int, **fields: Any) -> Job:
    times = {"timestamp": 10, "processed_on": 20, "finished_on": 30}
    return Job("hosts", str(n), data_text=json.dumps({"n": n}), **{"state": "completed", **times, **fields})


BALANCED: dict[str, Any] = {
    "acknowledged": [[1, 2], [3, 4]],
    "failed": [[5, 6], [7, 8]],
    "jobs": [a_job(n) for n in (1, 2, 3, 4, 7, 8)],
    "runs": Counter("123478"),
    "results": Counter("123478"),
    "now": 40,
}


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, Cell()),
        ({"acknowledged": [[1, 2], [3, 4, 9]]}, Cell(lost=1)),
        ({"failed": [[5, 6], [7, 8, 9]]}, Cell(lost=1)),
        ({"jobs": [*BALANCED["jobs"], a_job(4)]}, Cell(twice=1)),
        ({"jobs": [*BALANCED["jobs"][:5], a_job(8, state="failed")]}, Cell(lost=1)),
        ({"jobs": [*BALANCED["jobs"][:5], a_job(8, state="active", finished_on=None)]}, Cell(stuck=1)),
        ({"jobs": [*BALANCED["jobs"][:5], a_job(8, opts_text='{"delay": 11}')]}, Cell(out_of_order=1)),
        ({"now": 29}, Cell(out_of_order=6)),
        ({"runs": Counter("12347")}, Cell(lost=1)),
        ({"runs": Counter("1234788")}, Cell(repeats=1)),
        ({"results": Counter("123477")}, Cell(lost=1, twice=1)),
        ({"ended": 2}, Cell(stuck=2)),
    ],
)
def test_the_books_of_hosts_count_each_row_job_and_result(changed: dict[str, Any], found: Cell) -> None:
    assert Books(**{**BALANCED, **changed}).cell == found


@pytest.mark.soak
def test_all_verbs_work_on_two_hosts_and_faults_lose_nothing() -> None:
    need(can_hold(), "needs Linux, root, network namespaces and iptables")
    command = [sys.executable, "-m", "tests.proof.hosts", *(part for name in FAULTS for part in ("--fault", name))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all verbs: dispatch, inspect, process in slots, process in batches, collect" in done.stderr
    assert all(f"| {name} | " in done.stdout for name in FAULTS)
