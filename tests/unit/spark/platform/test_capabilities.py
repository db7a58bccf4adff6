"""The table of what versions of PySpark can do agrees with the PySpark that runs this test."""

from __future__ import annotations

import pyspark
import pytest

from spark_bull.spark.platform.capabilities import CAPABILITIES


@pytest.mark.parametrize("name", CAPABILITIES)
def test_a_version_has_what_the_table_says(name: str) -> None:
    capability = CAPABILITIES[name]
    major, minor = capability.since.split(".")
    found = tuple(map(int, pyspark.__version__.split(".")[:2]))
    assert capability.has == (found >= (int(major), int(minor)))
