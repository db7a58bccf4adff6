"""Spans and metrics of UDFs and of functions of DataFrames, exported where their slots run."""

from __future__ import annotations

import json
from pathlib import Path
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
    @f.pandas_udf("long")  # type: ignore[call-overload]
    def double(n: pd.Series) -> pd.Series:
        return n * 2

    def double_frame(jobs: DataFrame) -> DataFrame:
        return jobs.select("id", "token", (f.col("data.n") * 2).alias("returnvalue"))

    return double if kind == "UDF" else double_frame


def lines_of(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["UDF", "DataFrame"])
def test_batches_export_a_span_with_links_and_the_metrics_of_their_jobs(
    spark: SparkSession, redis_url: str, prefix: str, tmp_path: Path, kind: str
) -> None:
    spans, metrics = str(tmp_path / "spans"), str(tmp_path / "metrics")

    def tracer() -> Tracer:
        out = open(spans, "a")  # noqa: SIM115 - until the slot ends
        exporter = ConsoleSpanExporter(out=out, formatter=lambda span: f"{span.to_json(indent=None)}\n")
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(exporter))
        return provider.get_tracer("executors")

    def meter() -> MeterProvider:
        out = open(metrics, "a")  # noqa: SIM115 - until the slot ends
        exporter = ConsoleMetricExporter(out=out, formatter=lambda data: f"{data.to_json(indent=None)}\n")
        return SdkMeterProvider([PeriodicExportingMetricReader(exporter)])

    program = TracerProvider().get_tracer("program")
    options: dict[str, Any] = {"url": redis_url, "prefix": prefix}
    with BullQueue("q", protocol="bullmq", tracer=program, **options) as queue:
        with program.start_as_current_span("request") as request:
            queue.add_many(NewJob({"n": n}, name="double") for n in range(5))
        given = {"payload_schema": "n LONG", "engine": "loop", "slots": 1, "progress": False}
        with Worker(spark, "q", processor_of(kind), tracer=tracer, meter=meter, **given, **options):
            wait_until(lambda: queue.counts()["completed"] == 5, "the jobs")
    batches = [span for span in lines_of(Path(spans)) if span["name"] == "process q"]
    links = [link["context"]["trace_id"] for batch in batches for link in batch["links"]]
    assert links == [f"0x{request.get_span_context().trace_id:032x}"] * 5
    assert sum(batch["attributes"]["bullmq.job.bulk.count"] for batch in batches) == 5
    (scope,) = lines_of(Path(metrics))[-1]["resource_metrics"][0]["scope_metrics"]
    (completed,) = (metric for metric in scope["metrics"] if metric["name"] == "bullmq.jobs.completed")
    (point,) = completed["data"]["data_points"]
    assert (point["value"], point["attributes"]["bullmq.job.name"]) == (5, "double")
