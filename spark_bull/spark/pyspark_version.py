"""Whether PySpark is new enough: older ones lack parts of the data source API, and would fail with an ImportError."""

from __future__ import annotations

import re
from typing import Final

from spark_bull.errors import SparkBullError

MIN_PYSPARK: Final = (4, 2)


def check_pyspark(version: str) -> None:
    """Raises SparkBullError for a version such as `4.1.0`. One that can't be read is taken for new enough."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < MIN_PYSPARK:
        oldest = ".".join(map(str, MIN_PYSPARK))
        raise SparkBullError(
            f"expected PySpark {oldest} or newer, got: {version}; run `pip install 'pyspark>={oldest}'`, and a Spark "
            "cluster of the same version"
        )
