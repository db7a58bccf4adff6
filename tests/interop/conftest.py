"""The Spark session of tests/spark, for tests with Spark and Node."""

from tests.spark.conftest import bull, spark

__all__ = ["bull", "spark"]
