"""Imports of processes that start often: they delay a query or a command, and take memory."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import spark_bull
from spark_bull.cli.commands import NAMES, commands_of

ROOT = Path(__file__).parents[2]
#: The module that Spark runs for the source of a stream.
STREAM = "pyspark.sql.streaming.python_streaming_source_runner"
#: Modules that take long to import.
COSTLY = {"pandas", "pyarrow.compute", "pyarrow.json", "pyspark.pandas", "pyspark.ml", "redis", "msgpack", "asyncio"}


def imported(step: str, ours: str) -> set[str]:
    """The modules imported in addition to those of the first one."""
    program = f"import sys, {step}; theirs = set(sys.modules); import {ours}; print(*(set(sys.modules) - theirs))"
    command = [sys.executable, "-c", program]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_the_source_of_claimed_jobs_imports_redis_and_nothing_for_batches() -> None:
    """redis-py always imports its asyncio modules."""
    modules = imported(STREAM, "spark_bull.spark.provider, spark_bull.spark.process.claim_stream")
    assert "redis.client" in modules
    assert modules & COSTLY == {"redis", "msgpack", "asyncio"}
    assert not {name for name in modules if name.startswith(("pyspark.", "numpy."))}


def test_the_public_names_are_those_that_type_checkers_see() -> None:
    stub = ast.parse((ROOT / "spark_bull" / "__init__.pyi").read_text("utf-8"))
    typed = {
        imported.asname: getattr(import_module(str(statement.module)), imported.name)
        for statement in stub.body
        if isinstance(statement, ast.ImportFrom)
        for imported in statement.names
    }
    star: dict[str, object] = {}
    exec("from spark_bull import *", star)
    del star["__builtins__"]
    assert star == typed | {"__version__": spark_bull.__version__}


def test_importing_the_package_imports_none_of_the_public_names() -> None:
    modules = imported("re, pkgutil", "spark_bull")
    assert {name for name in modules if name.startswith("spark_bull.")} == {"spark_bull.version"}


def test_each_command_is_in_the_list_of_its_module() -> None:
    assert {group: tuple(command.name for command in commands_of(*group)) for group in NAMES} == NAMES


def test_opentelemetry_is_imported_only_for_a_tracer() -> None:
    """redis-py imports it, too, where it is installed."""
    modules = imported("redis", "spark_bull.queue.bull_queue, spark_bull.worker.slot.slot")
    assert "spark_bull.tracing.tracer" in modules
    assert "spark_bull.tracing.otel" not in modules
    assert not {name for name in modules if name.split(".")[0] == "opentelemetry"}
