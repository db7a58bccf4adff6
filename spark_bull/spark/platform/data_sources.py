"""The data sources that a session knows."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource


def finds(spark: SparkSession, name: str) -> bool:
    """Whether a session has a data source of Python with this name; False if it cannot be asked, as with Connect."""
    try:
        return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name))
    except Exception:
        # Not a public interface: a platform may refuse it.
        return False


def register_source(spark: SparkSession, source: type[DataSource]) -> None:
    """Registers a data source. PySpark 4.0 refuses one that it has found by itself, and uses that one."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
