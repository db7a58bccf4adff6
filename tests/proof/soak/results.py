"""The table of results that the Spark driver writes, as jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from spark_bull.model.jobs import Job

#: Stored as ms since 1970.
TIMES = ("timestamp", "processedOn", "finishedOn")
COLUMNS = ("queue", "id", "state", "data", "failedReason", "attemptsMade", "attemptsStarted", *TIMES)


def committed_files(table: Path) -> list[Path]:
    """The files of the committed batches, by Spark's log; a compacted entry has those of all batches before."""
    log = table / "_spark_metadata"
    entries = {int(entry.name.partition(".")[0]): entry for entry in log.glob("[0-9]*")}
    compact = max((batch for batch, entry in entries.items() if entry.suffix == ".compact"), default=-1)
    files = []
    for batch in sorted(batch for batch in entries if batch >= compact):
        for line in entries[batch].read_text().splitlines()[1:]:
            files.append(table / Path(json.loads(line)["path"]).name)
    return files


def read_table(table: Path) -> Iterator[Job]:
    """The results, in the order of their batches, without those of jobs that were gone before they were read."""
    for file in committed_files(table):
        yield from (_job(row) for row in pq.read_table(file).to_pylist() if row["data"] is not None)


def _job(row: dict[str, Any]) -> Job:
    return Job(
        row["queue"],
        row["id"],
        row["state"],
        data_text=row["data"],
        failed_reason=row["failedReason"],
        attempts_made=row["attemptsMade"] or 0,
        attempts_started=row["attemptsStarted"],
        timestamp=row["timestamp"],
        processed_on=row["processedOn"],
        finished_on=row["finishedOn"],
    )
