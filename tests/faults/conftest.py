"""Tests that kill processes or cut connections. The Spark session is that of tests/spark."""

from __future__ import annotations

import pytest

from tests.spark.conftest import bull, files, queue, spark

__all__ = ["bull", "files", "queue", "spark"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Called for the tests of this folder only."""
    item.add_marker(pytest.mark.faults)
