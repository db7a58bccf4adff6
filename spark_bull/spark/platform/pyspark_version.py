"""Checks the version of PySpark: older versions lack parts of the data source API and fail with an ImportError."""

from __future__ import annotations

import re
from typing import Final

from spark_bull.core.errors import SparkBullError

MIN_PYSPARK: Final = (4, 0)


def check_pyspark(version: str) -> None:
    """Raises SparkBullError for an older version, such as `4.1.0`. A version that cannot be parsed is accepted."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < MIN_PYSPARK:
        oldest = ".".join(map(str, MIN_PYSPARK))
        raise SparkBullError(
            f"expected PySpark {oldest} or newer, got: {version}; run `pip install 'pyspark>={oldest}'` and use "
            "a Spark cluster of the same version"
        )
