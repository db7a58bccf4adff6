"""The Spark data source `bull`, and the Worker."""

from importlib.util import find_spec

from spark_bull.core.errors import SparkBullError

if missing := [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]:
    raise SparkBullError(
        f"expected the packages of the extra `spark`, found no {', '.join(missing)}: run `pip install "
        "'spark-bull[spark]'`, with the PySpark of your cluster. BullQueue, LocalWorker, Promoter and the commands for "
        "queues need no Spark"
    )

import pyspark

from spark_bull.spark.platform.requirements import check_pyspark

check_pyspark(pyspark.__version__)
