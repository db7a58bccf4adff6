"""The data source: dispatch, inspect, collect and process in Spark."""

import pyspark

from spark_bull.spark.pyspark_version import check_pyspark

check_pyspark(pyspark.__version__)
