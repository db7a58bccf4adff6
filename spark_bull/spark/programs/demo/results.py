"""Collects the results of the jobs, and draws who processed the flights of each carrier, and how late they were."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pandas as pd
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

from spark_bull.spark.programs.commands import Table, results, start
from spark_bull.spark.programs.demo.place import JOBS, Measured, Place, announce

#: A carrier with fewer flights has no mean score: single flights would decide it.
MIN_FLIGHTS: Final = 30


def draw(joined: pd.DataFrame) -> Figure:
    """Draws jobs by carrier and worker, and mean scores by carrier.

    joined: the columns carrier, worker, flights, and score (the mean of the flights).
    """
    flown = joined.pivot_table(index="carrier", columns="worker", values="flights", aggfunc="sum").fillna(0)
    total = flown.sum(axis="columns").sort_values(ascending=False)
    weighted = (joined["score"] * joined["flights"]).groupby(joined["carrier"]).sum()
    scores = (weighted / total)[total.index[total >= MIN_FLIGHTS]]

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    flown.loc[total.index].plot.bar(stacked=True, ax=left, rot=0)
    left.set(title="Jobs by carrier and worker", xlabel="carrier", ylabel="jobs (one per flight)")
    left.legend(title="worker")
    right.bar(list(scores.index), list(scores), width=0.5, color="tab:red")
    right.set(
        title="Mean score of delays",
        xlabel=f"carrier with at least {MIN_FLIGHTS} flights",
        ylabel="tanh(delay / 60 min) · ln(1 + distance / km)",
    )
    right.axhline(0, color="black", linewidth=0.8)
    return figure


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
