"""What the processes import that Spark starts for the steps of a write, read or stream: it delays the first use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from spark_bull import BullQueue
from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]
WORKER = "pyspark.sql.worker"
#: Packages and modules that take long to import.
COSTLY = {
    *("pandas", "numpy", "pyarrow", "pyarrow.compute", "pyarrow.json", "pyarrow.parquet", "redis", "asyncio"),
    *("pyspark.pandas", "pyspark.ml", "pyspark.sql.functions", "rich", "fastapi", "croniter"),
}
#: redis-py always imports its asyncio modules.
REDIS = {"redis", "asyncio"}
VERBS = {"dispatch", "schedule", "manage", "inspect", "collect", "work"}


class Step(NamedTuple):
    """of_spark: the modules that Spark itself imports, which are not counted. verb: the folder of its code.

    costly: modules of COSTLY that it needs.
    """

    code: str
    of_spark: tuple[str, ...]
    verb: str = ""
    costly: frozenset[str] = frozenset()


#: In the order in which Spark runs them. A step gets the objects of earlier ones as pickles, as Spark passes them on.
STEPS = {
    "look up": Step("assert source().name() == 'bull'", (f"{WORKER}.lookup_data_sources",)),
    "create": Step("save(source=source(), schema=source().schema())", (f"{WORKER}.create_data_source",)),
    "create a writer": Step(
        "from pyspark.sql.types import StringType, StructType\n"
        "save(writer=source().writer(StructType().add('data', StringType()), False))",
        (f"{WORKER}.write_into_data_source", "pyarrow"),
        "dispatch",
        frozenset(REDIS),
    ),
    "write": Step(
        "import pyarrow as pa\n"
        "with pa.ipc.open_stream(folder / 'rows') as rows: save(message=load('writer').write(rows))",
        # Spark converts the message of a task with pa.array(), which imports pandas.
        ("pyspark.worker", f"{WORKER}.write_into_data_source", "pyarrow", "pandas"),
        "dispatch",
        frozenset({*REDIS, "pyarrow.json"}),
    ),
    "commit": Step(
        "load('writer').commit([load('message')])",
        (f"{WORKER}.commit_data_source_write",),
        "dispatch",
        frozenset(REDIS),
    ),
    "plan a read": Step(
        "reader = load('source').reader(load('schema'))\nsave(reader=reader, partitions=reader.partitions())",
        (f"{WORKER}.plan_data_source_read",),
        "inspect",
        frozenset(REDIS),
    ),
    "read": Step(
        "assert sum(batch.num_rows for part in load('partitions') for batch in load('reader').read(part)) == 2",
        ("pyspark.worker", f"{WORKER}.plan_data_source_read"),
        "inspect",
        # pa.array() imports pandas.
        frozenset({*REDIS, "pandas", "pyarrow.compute"}),
    ),
    "plan a stream": Step(
        "reader = load('source').streamReader(load('schema'))\nstart = reader.initialOffset()\n"
        "reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))",
        ("pyspark.sql.streaming.python_streaming_source_runner",),
        "collect",
        frozenset(REDIS),
    ),
}
#: Prints the modules that a step imports.
PROGRAM = """
import json, sys
from importlib import import_module
from pathlib import Path

code, folder, options, *of_spark = sys.argv[1:]
for module in of_spark:
    import_module(module)
folder, before = Path(folder), set(sys.modules)

def source():
    return import_module("pyspark_bull").DefaultSource(json.loads(options))

def save(**values):
    for name, value in values.items():
        (folder / name).write_bytes(import_module("pyspark.cloudpickle").dumps(value))

def load(name):
    return import_module("pyspark.cloudpickle").loads((folder / name).read_bytes())

exec(code)
print(*sorted(set(sys.modules) - before))
"""


def test_each_step_imports_what_it_needs_and_nothing_of_other_verbs(
    tmp_path: Path, redis_url: str, prefix: str
) -> None:
    rows = pa.record_batch({"data": ['{"n": 1}', '{"n": 2}']})
    with pa.ipc.new_stream(tmp_path / "rows", rows.schema) as stream:
        stream.write_batch(rows)
    options = json.dumps({"queue": "q", "url": redis_url, "prefix": prefix})
    for name, step in STEPS.items():
        command = [sys.executable, "-c", PROGRAM, step.code, str(tmp_path), options, *step.of_spark]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ran.returncode == 0, f"{name}: {ran.stderr}"
        modules = {*ran.stdout.split()}
        assert modules & COSTLY == step.costly, name
        assert {verb for verb in VERBS if f"spark_bull.spark.{verb}" in modules} == {step.verb} - {""}, name
        assert ("spark_bull.core.store" in modules) == bool(step.verb), name
    with BullQueue("q", url=redis_url, prefix=prefix) as queue:
        assert queue.counts()["wait"] == 2
