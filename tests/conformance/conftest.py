"""Fixtures of the verbs of a queue, in every dialect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from spark_bull.queue.bull_queue import BullQueue
from tests.support.filled import Filled
from tests.support.sending import send_scripts_twice
from tests.support.work_bench import DIALECTS, WorkBench


@pytest.fixture(params=["once", "twice"])
def twice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether each script is sent again, as if its reply had been lost."""
    if request.param == "twice":
        send_scripts_twice(monkeypatch)
    return bool(request.param == "twice")


@pytest.fixture(params=DIALECTS)
def bench(
    request: pytest.FixtureRequest, twice: bool, client: Redis, redis_url: str, prefix: str
) -> Iterator[WorkBench]:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=request.param) as queue:
        yield WorkBench(queue, client, twice)


@pytest.fixture(params=DIALECTS)
def filled(request: pytest.FixtureRequest, client: Redis, redis_url: str, prefix: str) -> Iterator[Filled]:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=request.param) as queue:
        yield Filled(queue, client)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a Redis with restrictions, each test runs with its first values only, once for each dialect."""
    if config.getoption("--redis") == "plain" or config.getoption("--each-value"):
        return
    kept = {}
    for item in items:
        values = (
            item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
        )
        dialects = tuple(value for value in values if value in DIALECTS)
        kept.setdefault((item.parent, getattr(item, "originalname", item.name), dialects), item)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept.values()])
    items[:] = kept.values()
