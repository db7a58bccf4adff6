"""Imports of processes that start often: they delay a query or a command, and take memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_each_command_is_in_the_list_of_its_module() -> None:
    assert {group: tuple(command.name for command in commands_of(*group)) for group in NAMES} == NAMES


def test_opentelemetry_is_imported_only_for_a_tracer() -> None:
    """redis-py imports it, too, where it is installed."""
    modules = imported("redis", "spark_bull.queue.bull_queue, spark_bull.worker.slot.slot")
    assert "spark_bull.tracing.tracer" in modules
    assert "spark_bull.tracing.otel" not in modules
    assert not {name for name in modules if name.split(".")[0] == "opentelemetry"}
