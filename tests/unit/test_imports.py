"""Imports of the processes that Spark starts for a query: they delay the query and take memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The modules that Spark itself imports for a step of a query, before it loads the data source.
SCHEMA = "pyspark.sql.worker.create_data_source"
STREAM = "pyspark.sql.streaming.python_streaming_source_runner"
#: Modules that take long to import.
COSTLY = {"pandas", "pyarrow.compute", "pyarrow.json", "pyspark.pandas", "pyspark.ml", "redis", "msgpack", "asyncio"}


def imported(step: str, ours: str) -> set[str]:
    """The modules imported in addition to those of Spark."""
    program = f"import sys, {step}; theirs = set(sys.modules); import {ours}; print(*(set(sys.modules) - theirs))"
    command = [sys.executable, "-c", program]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_reading_the_schema_imports_neither_redis_nor_arrow_functions() -> None:
    modules = imported(SCHEMA, "spark_bull.spark.provider")
    assert "spark_bull.spark.schemas" in modules
    assert modules & COSTLY == set()


@pytest.mark.parametrize("stream", ["collect.stream", "process.claim_stream"])
def test_a_streaming_source_imports_redis_and_nothing_for_batches(stream: str) -> None:
    """redis-py always imports its asyncio modules."""
    modules = imported(STREAM, f"spark_bull.spark.provider, spark_bull.spark.{stream}")
    assert "redis.client" in modules
    assert modules & COSTLY == {"redis", "msgpack", "asyncio"}
    assert not {name for name in modules if name.startswith(("pyspark.", "numpy."))}


def test_opentelemetry_is_imported_only_for_a_tracer() -> None:
    """redis-py imports it, too, where it is installed."""
    modules = imported("redis", "spark_bull.queue.bull_queue, spark_bull.worker.slot")
    assert "spark_bull.tracer" in modules
    assert "spark_bull.otel" not in modules
    assert not {name for name in modules if name.split(".")[0] == "opentelemetry"}
