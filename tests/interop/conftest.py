"""The Spark session of tests/spark, for what Spark and Node do together."""

from tests.spark.conftest import bull, spark

__all__ = ["bull", "spark"]
