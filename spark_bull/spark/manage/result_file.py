"""The file with what became of each change of a write: Parquet, in the directory `resultPath`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.model.jobs import Changed
from spark_bull.core.options.redis_settings import masked

_SCHEMA: Final = pa.schema([(name, pa.string()) for name in ("queue", "id", "action", "outcome")])
_ROWS: Final = 50_000
_WRITABLE: Final = "a directory that can be written"


def check_path(path: str | None) -> None:
    """Raises OptionError for a directory that can't be created."""
    if path == "":
        raise OptionError("expected `resultPath` to be a directory, got an empty text: leave it out for no file")
    if path is not None:
        system, directory = _located(path)
        try:
            system.create_dir(directory, recursive=True)
        except (OSError, pa.ArrowException) as error:
            raise OptionError(_refusal(path, _WRITABLE, error)) from None


def write_outcomes(path: str, write_id: str, outcomes: Iterable[tuple[str, Changed]]) -> str:
    """Writes the outcomes, each with the name of its queue; returns the path of the file.

    The file is named after the write, so that a repetition replaces it. Raises SparkBullError if it can't be
    written.
    """
    system, directory = _located(path)
    name = f"{directory}/{write_id}.parquet"
    # Spark ignores files that begin with an underscore: it sees the file when it is complete.
    hidden = f"{directory}/_{write_id}.parquet"
    try:
        with system.open_output_stream(hidden) as stream, pq.ParquetWriter(stream, _SCHEMA) as writer:
            for batch in _batches(iter(outcomes)):
                writer.write_batch(batch)
        system.move(hidden, name)
    except (OSError, pa.ArrowException) as error:
        raise SparkBullError(_refusal(path, _WRITABLE, error)) from None
    return name


def _batches(outcomes: Iterator[tuple[str, Changed]]) -> Iterator[pa.RecordBatch]:
    while part := list(islice(outcomes, _ROWS)):
        columns = zip(*((queue, one.id, one.action, one.outcome) for queue, one in part), strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], schema=_SCHEMA)


def _located(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path in it. Raises OptionError."""
    try:
        is_uri = "://" in path or path.startswith("file:")
        located: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path if is_uri else os.path.abspath(path))
        return located
    except (ValueError, OSError, pa.ArrowException) as error:
        raise OptionError(_refusal(path, "a path or URI that pyarrow can open", error)) from None


def _refusal(path: str, wanted: str, error: Exception) -> str:
    """The message shows neither the keys that a URI can contain, nor all places where pyarrow has looked for files."""
    shown = masked(path.partition("?")[0]) if "://" in path else path
    why = str(error).partition("\n")[0].replace(path, shown)
    return f"expected `resultPath` to be {wanted}, got: {shown!r} ({why})"
