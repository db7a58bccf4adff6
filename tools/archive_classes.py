"""Archives the classes of Spark that most programs load: the JVMs of the demo and the tests start with half of the CPU.

A JVM uses the archive with -XX:SharedArchiveFile if it has the same version and class path, and otherwise loads the
classes as usual. See "Class Data Sharing" in the manual of the JDK.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf


def archive(path: Path) -> None:
    """Writes the archive when the JVM of a new session ends. The environment is the same as in the tests."""
    path.unlink(missing_ok=True)
    os.environ.pop("SPARK_CONF_DIR", None)
    write = shlex.quote(f"-XX:ArchiveClassesAtExit={path}")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {write}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    ran = subprocess.run([sys.executable, __file__], check=False, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"expected Spark to run, to archive its classes, it failed:\n{ran.stderr}")


def load_classes() -> None:
    """Runs what the tests run: SQL, files, Python functions and a stream."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.range(100).selectExpr("id", "CAST(id % 3 AS STRING) AS name", "struct(id) AS data")
        rows.write.parquet(f"{folder}/rows")
        rows.drop("data").write.option("header", True).csv(f"{folder}/csv")
        rows.write.json(f"{folder}/json")
        spark.read.option("header", True).csv(f"{folder}/csv").count()
        spark.read.json(f"{folder}/json").count()
        stored = spark.read.parquet(f"{folder}/rows")
        stored.createOrReplaceTempView("rows")
        spark.sql("SELECT name, count(*), get_json_object(to_json(data), '$.id') FROM rows GROUP BY ALL").show()
        stored.select(udf(len)("name")).toPandas()

        def keep(batch: DataFrame, number: int) -> None:
            batch.write.mode("append").parquet(f"{folder}/kept")

        stream = spark.readStream.schema(stored.schema).parquet(f"{folder}/rows")
        started = stream.writeStream.foreachBatch(keep).option("checkpointLocation", f"{folder}/checkpoint")
        started.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        archive(Path(sys.argv[1]).absolute())
    else:
        load_classes()
