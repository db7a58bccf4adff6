"""One step of a write, read or stream, as the process that Spark starts for it: prints the modules that it imports.

    python -m tests.integration.spark_steps STEP FOLDER OPTIONS

The modules that Spark itself imports for the step are not counted. A step gets the objects of earlier ones as pickles
in the folder, as Spark passes them on. OPTIONS: of the data source, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

WORKER: Final = "pyspark.sql.worker"


class Folder:
    """Objects that steps pass on."""

    def __init__(self, path: str, options: dict[str, str]) -> None:
        self.path = Path(path)
        self.options = options

    def source(self) -> Any:
        return import_module("pyspark_bull").DefaultSource(self.options)

    def save(self, **values: Any) -> None:
        from pyspark import cloudpickle

        for name, value in values.items():
            (self.path / name).write_bytes(cloudpickle.dumps(value))

    def load(self, name: str) -> Any:
        from pyspark import cloudpickle

        return cloudpickle.loads((self.path / name).read_bytes())


def look_up(folder: Folder) -> None:
    assert folder.source().name() == "bull"


def create(folder: Folder) -> None:
    source = folder.source()
    folder.save(source=source, schema=source.schema())


def create_writer(folder: Folder) -> None:
    from pyspark.sql.types import StringType, StructType

    writer = folder.source().writer(StructType().add("data", StringType()), False)
    folder.save(writer=writer)


def write(folder: Folder) -> None:
    import pyarrow as pa

    with pa.ipc.open_stream(folder.path / "rows") as rows:
        folder.save(message=folder.load("writer").write(rows))


def commit(folder: Folder) -> None:
    folder.load("writer").commit([folder.load("message")])


def plan_read(folder: Folder) -> None:
    reader = folder.load("source").reader(folder.load("schema"))
    folder.save(reader=reader, partitions=reader.partitions())


def read(folder: Folder) -> None:
    rows = 0
    for partition in folder.load("partitions"):
        rows += sum(batch.num_rows for batch in folder.load("reader").read(partition))
    assert rows, "expected jobs, got none"


def plan_stream(folder: Folder) -> None:
    reader = folder.load("source").streamReader(folder.load("schema"))
    start = reader.initialOffset()
    reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))


#: What a step does, after the modules that Spark imports for it.
STEPS: Final[dict[str, tuple[Callable[[Folder], None], tuple[str, ...]]]] = {
    "look_up": (look_up, (f"{WORKER}.lookup_data_sources",)),
    "create": (create, (f"{WORKER}.create_data_source",)),
    "create_writer": (create_writer, (f"{WORKER}.write_into_data_source", "pyarrow")),
    # Spark converts the message of a task with pa.array(), which imports pandas.
    "write": (write, ("pyspark.worker", f"{WORKER}.write_into_data_source", "pyarrow", "pandas")),
    "commit": (commit, (f"{WORKER}.commit_data_source_write",)),
    "plan_read": (plan_read, (f"{WORKER}.plan_data_source_read",)),
    "read": (read, ("pyspark.worker", f"{WORKER}.plan_data_source_read")),
    "plan_stream": (plan_stream, ("pyspark.sql.streaming.python_streaming_source_runner",)),
}


def main() -> None:
    step, path, options = sys.argv[1:]
    act, of_spark = STEPS[step]
    for module in of_spark:
        import_module(module)
    before = set(sys.modules)
    act(Folder(path, json.loads(options)))
    print(*sorted(set(sys.modules) - before))


if __name__ == "__main__":
    main()
