"""Spans and metrics of UDFs and of functions of DataFrames, exported where their slots run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.trace import Tracer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_bull import BullQueue, NewJob, Worker
from tests.support.wait import wait_until


def processor_of(kind: str) -> Any:
    """Doubles numbers; fails 13."""

    @f.pandas_udf("long")
    def double(n: pd.Series) -> pd.Series:
        if (n == 13).any():
            raise ValueError("unlucky")
        return n * 2

    def double_frame(jobs: DataFrame) -> DataFrame:
        error = f.when(f.col("data.n") == 13, "unlucky").alias("error")
        return jobs.select("id", "token", (f.col("data.n") * 2).alias("returnvalue"), error)

    return double if kind == "UDF" else double_frame


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["UDF", "DataFrame"])
def test_batches_export_a_span_with_links_and_the_metrics_of_their_jobs(
    spark: SparkSession, redis_url: str, prefix: str, tmp_path: Path, kind: str
) -> None:
    spans, metrics = tmp_path / "spans", tmp_path / "metrics"

    def appending(file: Path) -> Any:
        """What exporters write to: no file stays open."""

        def write(text: str) -> None:
            with file.open("a") as out:
                out.write(text)

        return SimpleNamespace(write=write, flush=lambda: None)

    def line(exported: Any) -> str:
        return f"{exported.to_json(indent=None)}\n"

    def tracer() -> Tracer:
        exporter = ConsoleSpanExporter(out=appending(spans), formatter=line)
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return provider.get_tracer("executors")

    def meter() -> MeterProvider:
        exporter = ConsoleMetricExporter(out=appending(metrics), formatter=line)
        return SdkMeterProvider([PeriodicExportingMetricReader(exporter)])

    program = TracerProvider().get_tracer("program")
    options: dict[str, Any] = {"url": redis_url, "prefix": prefix}
    with BullQueue("q", protocol="bullmq", tracer=program, **options) as queue:
        with program.start_as_current_span("request") as request:
            queue.add_many(NewJob({"n": n}, name="double") for n in range(11, 16))
        given: dict[str, Any] = {"payload_schema": "n LONG", "slots": 1, "progress": False}
        with Worker(spark, "q", processor_of(kind), tracer=tracer, meter=meter, **given, **options):
            wait_until(lambda: queue.counts()["completed"] + queue.counts()["failed"] == 5, "the jobs")
    batches = [span for span in lines_of(spans) if span["name"] == "process q"]
    links = [link["context"]["trace_id"] for batch in batches for link in batch["links"]]
    assert links == [f"0x{request.get_span_context().trace_id:032x}"] * 5
    assert sum(batch["attributes"]["bullmq.job.bulk.count"] for batch in batches) == 5
    (failed,) = (batch["status"] for batch in batches if batch["status"]["status_code"] == "ERROR")
    assert "1 of" in failed["description"]
    (scope,) = lines_of(metrics)[-1]["resource_metrics"][0]["scope_metrics"]
    counted = {one["name"]: one["data"]["data_points"][0] for one in scope["metrics"]}
    assert {name: point["value"] for name, point in counted.items() if "value" in point} == {
        "bullmq.jobs.completed": 4,
        "bullmq.jobs.failed": 1,
    }
    assert counted["bullmq.jobs.completed"]["attributes"]["bullmq.job.name"] == "double"
