"""Base classes of writers that receive Arrow data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

__all__ = ["DataSourceArrowWriter", "DataSourceStreamArrowWriter", "WriterCommitMessage"]

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        from pyspark.sql.datasource import DataSourceStreamWriter

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """PySpark 4.0 passes Arrow data to each DataSourceArrowWriter, also of streams."""
