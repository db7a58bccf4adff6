"""Tests that kill processes or cut connections. The Spark session is that of tests/spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.conftest import bull, spark

__all__ = ["bull", "spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.faults)
