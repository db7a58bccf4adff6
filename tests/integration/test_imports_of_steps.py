"""What the processes import that Spark starts for the steps of a write, read or stream: it delays the first use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from spark_bull import BullQueue
from tests.integration.spark_steps import STEPS
from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]
#: Packages and modules that take long to import.
COSTLY = {
    *("pandas", "numpy", "pyarrow", "pyarrow.compute", "pyarrow.json", "pyarrow.parquet", "redis", "asyncio"),
    *("pyspark.pandas", "pyspark.ml", "pyspark.sql.functions", "rich", "fastapi", "croniter"),
}
#: redis-py always imports its asyncio modules.
REDIS = {"redis", "asyncio"}
#: The folder of the verb of a step, and those of COSTLY that it needs.
NEEDED: dict[str, tuple[str, set[str]]] = {
    "look_up": ("", set()),
    "create": ("", set()),
    "create_writer": ("dispatch", REDIS),
    "write": ("dispatch", {*REDIS, "pyarrow.json"}),
    "commit": ("dispatch", REDIS),
    "plan_read": ("inspect", REDIS),
    # pa.array() imports pandas.
    "read": ("inspect", {*REDIS, "pandas", "pyarrow.compute"}),
    "plan_stream": ("collect", REDIS),
}
VERBS = {"dispatch", "schedule", "manage", "inspect", "collect", "work"}


@pytest.fixture
def imports(tmp_path: Path, redis_url: str, prefix: str) -> dict[str, set[str]]:
    """The modules that each step imports, in the order of STEPS."""
    rows = pa.record_batch({"data": ['{"n": 1}', '{"n": 2}']})
    with pa.ipc.new_stream(tmp_path / "rows", rows.schema) as stream:
        stream.write_batch(rows)
    options = json.dumps({"queue": "q", "url": redis_url, "prefix": prefix})
    found = {}
    for step in STEPS:
        command = [sys.executable, "-m", "tests.integration.spark_steps", step, str(tmp_path), options]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ran.returncode == 0, f"{step}: {ran.stderr}"
        found[step] = set(ran.stdout.split())
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        assert queue.counts()["wait"] == 2
    return found


def test_each_step_imports_what_it_needs_and_nothing_of_other_verbs(imports: dict[str, set[str]]) -> None:
    needed = {step: costly for step, (_, costly) in NEEDED.items()}
    assert {step: modules & COSTLY for step, modules in imports.items()} == needed
    verbs = {
        step: {verb for verb in VERBS if f"spark_bull.spark.{verb}" in modules} for step, modules in imports.items()
    }
    assert verbs == {step: {verb} - {""} for step, (verb, _) in NEEDED.items()}
    without_redis = {step for step, modules in imports.items() if "spark_bull.core.store" not in modules}
    assert without_redis == {"look_up", "create"}
