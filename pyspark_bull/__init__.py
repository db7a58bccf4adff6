"""Makes `format("bull")` known: Spark imports every installed `pyspark_*` package and asks it for `DefaultSource`."""

import logging

try:
    from spark_bull.spark.provider import BullDataSource as DefaultSource
except Exception as error:
    # Never raise: Spark imports all such packages in one go, and one that fails hides the data sources of all others.
    # With no DefaultSource here, Spark passes this package over; `spark_bull.register(spark)` shows the full error.
    logging.getLogger(__name__).warning('format("bull") is not available: %s: %s', type(error).__name__, error)
else:
    __all__ = ["DefaultSource"]
