"""Collects the results of the jobs, and draws them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession

from spark_bull.spark.programs.commands import Table, results, start
from spark_bull.spark.programs.demo.flights import JOBS
from spark_bull.spark.programs.demo.picture import draw
from spark_bull.spark.programs.demo.place import Place
from spark_bull.spark.programs.demo.shown import Measured, announce


def collect(spark: SparkSession, place: Place, table: Path, folder: Path, picture: Path) -> Measured:
    """Writes the results to a table, joins them with the flights, and draws a chart."""
    lake = str(folder / "results")
    announce(
        "8. Results are streamed to Parquet exactly once; `spark-bull collect` does the same",
        f"""spark.readStream.format("bull"){place.shown}.load().writeStream.format("parquet")…""",
    )
    query = start(results(spark, place.options), Table(lake))
    query.awaitTermination()
    batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
    rows = sum(batch["numInputRows"] for batch in batches)
    seconds = sum(batch["durationMs"]["triggerExecution"] for batch in batches) / 1000

    by_carrier = """
        SELECT carrier, processedBy AS worker, count(*) AS flights, round(avg(result.km)) AS km,
               round(avg(result.score), 3) AS score
        FROM dispatched JOIN (SELECT id, processedBy, from_json(returnvalue, 'km DOUBLE, score DOUBLE') AS result
                              FROM results) ON id = jobId
        GROUP BY carrier, processedBy ORDER BY carrier, processedBy
    """
    announce("9. Joined with the flights by job id", by_carrier)
    spark.read.parquet(str(table)).createOrReplaceTempView("input")
    spark.sql(JOBS).selectExpr("jobId", "name AS carrier").createOrReplaceTempView("dispatched")
    spark.read.parquet(lake).createOrReplaceTempView("results")
    joined: pd.DataFrame = spark.sql(by_carrier).toPandas()
    print(joined.head(8).to_string(index=False))
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(joined).savefig(picture)
    assert joined["flights"].sum() == rows, "expected each result to belong to one flight"
    return Measured("collect", rows, seconds, "exactly once, into Parquet")
