"""The Spark data source `bull`, and the Worker."""

import pyspark

from spark_bull.spark.platform.requirements import check_pyspark

check_pyspark(pyspark.__version__)
