"""Tests that kill processes or cut connections. The Spark session is shared with tests/spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from spark_bull import BullQueue
from tests.faults import slots
from tests.spark.conftest import bull, files, spark
from tests.support.forked_programs import ForkedProcess

__all__ = ["bull", "files", "spark"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Called for the tests of this folder only."""
    item.add_marker(pytest.mark.faults)


@pytest.fixture
def start_slot(queue: BullQueue, redis_url: str, prefix: str) -> Callable[..., ForkedProcess]:
    """Starts a slot of the queue in a process of its own: `start_slot(concurrency, kind)`."""
    return partial(slots.start_slot, redis_url, prefix, queue.protocol)
