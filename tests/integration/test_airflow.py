"""The operator of docs/howto/orchestrators.md in a real Airflow, which has an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_bull import BullQueue, EmbeddedRedis, LocalWorker, NewJob
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from tests.support.examples import ROOT, blocks
from tests.support.wheel import build_wheel
from tests.support.writes import stage_all

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_200)]

PAGE = ROOT / "docs" / "howto" / "orchestrators.md"
DAG = """
import datetime, sys
from airflow import DAG
from spark_bull_airflow import WaitForWrite

url, write_id = sys.argv[1:]
with DAG("reports", start_date=datetime.datetime(2026, 1, 1), schedule=None) as dag:
    WaitForWrite(task_id="wait", queue="mail", write_id=write_id, url=url)
run = dag.test()
(task,) = run.get_task_instances()
print("ended", task.state, task.xcom_pull(task_ids="wait"))
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with Airflow and this package."""
    commands = ROOT / ".venv-airflow" / "bin"
    if not (commands / "airflow").exists():
        subprocess.run([sys.executable, "-m", "venv", commands.parent], check=True)
        install = [commands / "pip", "install", "--quiet", "apache-airflow>=2.11,<3"]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"Airflow cannot be installed: {done.stderr[-200:]}")
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    subprocess.run([commands / "pip", "install", "--quiet", "--force-reinstall", "--no-deps", wheel], check=True)
    subprocess.run([commands / "pip", "install", "--quiet", wheel], check=True)
    return commands


@pytest.mark.parametrize(("behaviours", "ended"), [((0, 0), "success 2"), ((0, 1), "failed None")])
def test_a_deferred_task_waits_for_a_write(
    airflow: Path, own_redis: Callable[..., EmbeddedRedis], tmp_path: Path, behaviours: tuple[int, ...], ended: str
) -> None:
    (text,) = (block.text for block in blocks(PAGE, ROOT) if "from airflow" in block.text)
    (tmp_path / "spark_bull_airflow.py").write_text(text, "utf-8")
    (tmp_path / "reports.py").write_text(DAG, "utf-8")
    env = os.environ | {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    subprocess.run([airflow / "airflow", "db", "migrate"], env=env, check=True, capture_output=True)
    url = own_redis().url
    with BullQueue("mail", url=url) as queue:
        write_id = tmp_path.name
        jobs = [NewJob({"fails": fails}) for fails in behaviours]
        register(write_id, [stage_all(queue.handle, write_id, [jobs], keepsIds=1)], None)
        roll_forward(queue.handle, write_id)
        program = [airflow / "python", "reports.py", url, write_id]
        with LocalWorker("mail", lambda job: 1 // (1 - job.data["fails"]), url=url):
            run = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert f"ended {ended}" in run.stdout, run.stdout[-2_000:] + run.stderr[-2_000:]
    assert ended == "success 2" or "1 jobs have failed: {'integer division or modulo by zero': 1}" in run.stdout
