"""A further dialect needs a class and a line in dialects/, a folder of Lua scripts, and a name in the options."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

DIALECT = """
from spark_bull.core.dialects.bull import Bull


class Bull9(Bull):
    name = "bull-9"
    folder = "bull9"
"""

PROGRAM = """
import sys
from spark_bull import BullQueue, NewJob
from spark_bull.core.store.scripts import load
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

url, prefix = sys.argv[1:]
with BullQueue("q", url=url, prefix=prefix, protocol="bull-9") as queue:
    queue.add_many([NewJob({"n": n}) for n in range(5)])
    queue.add({"n": 5}, delay=3_600_000)
    queue.pause()
    assert queue.counts()["paused"] == 5
    queue.resume()
    with OurWorker(queue.handle):
        wait_until(lambda: queue.counts()["completed"] == 5, "the jobs to complete")
    queue.promote("6")
    assert queue.counts()["wait"] == 1
    print(queue.protocol, load("bull9/add").name)
"""


def insert(file: Path, before: str, text: str) -> None:
    known = file.read_text()
    assert known.count(before) == 1, f"expected `{before}` once in {file.name}"
    file.write_text(known.replace(before, text + before))


def test_a_further_dialect_changes_nothing_outside_of_its_own_places(
    redis_url: str, prefix: str, tmp_path: Path
) -> None:
    package = tmp_path / "spark_bull"
    shutil.copytree(ROOT / "spark_bull", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(package / "core/lua/bull", package / "core/lua/bull9")
    (package / "core/dialects/bull9.py").write_text(DIALECT)
    registry, module = package / "core/dialects/registry.py", "from spark_bull.core.dialects."
    insert(registry, f"{module}bullmq import", f"{module}bull9 import Bull9\n")
    insert(registry, "BullMQ())}", "Bull9(), ")
    insert(package / "core/options/parts.py", '"bullmq")\n', '"bull-9", ')

    command = [sys.executable, "-c", PROGRAM, redis_url, prefix]
    path = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["bull-9", "bull9/add"]
