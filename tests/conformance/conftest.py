"""Fixtures of the verbs of a queue, in every dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from redis import Redis

from spark_bull.core.queue.bull_queue import BullQueue
from tests.conformance.pair import Pair
from tests.support.node import NodePeer, Peer
from tests.support.traffic import send_scripts_twice
from tests.support.work_bench import DIALECTS, Filled, WorkBench

OpenQueue = Callable[..., BullQueue]
OLDER = DIALECTS[:-1]
#: Files, and single tests, that see the first reply of scripts: only here is what BullMQ does once part of `make test`.
ONCE = (
    "test_work",
    "test_the_promoter_fails_expired_jobs_wherever_they_are_in_the_list",
    "test_the_promoter_fails_jobs_that_have_expired",
    "test_a_claim_says_why_what_is_left_of_a_job_fails",
    "test_two_attempts_share_their_calls",
)
#: Tests that run each script of Bull 1: only here is it part of `make test`.
BULL_1 = ("test_add", "test_damage", "test_manage", "test_read", "test_results", "test_work")
#: Tests whose scripts and Python are the same for all dialects: here Bull is not part of `make test`.
ALIKE = (
    "test_byte_ids",
    "test_cancel",
    "test_concurrency",
    "test_long_jobs",
    "test_otel_metrics",
    "test_processors",
    "test_queues",
    "test_stats",
    "test_traces",
    "test_wait",
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """What shows a promise again, in another dialect or without a lost reply, is not part of `make test`."""
    values, file = {*values_of(item)}, item.path.stem
    if "once" in values and (values & {*OLDER} or not {file, getattr(item, "originalname", None)} & {*ONCE}):
        item.add_marker(pytest.mark.soak)
    elif ("bull-1" in values and file not in BULL_1) or ("bull" in values and file in ALIKE):
        item.add_marker(pytest.mark.rest)


@pytest.fixture(params=["once", "twice"])
def twice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether each script is sent again, as if its reply had been lost."""
    if request.param == "twice":
        send_scripts_twice(monkeypatch)
    return bool(request.param == "twice")


@pytest.fixture
def dialect(request: pytest.FixtureRequest) -> str:
    """BullMQ, or the dialect that is a parameter."""
    return getattr(request, "param", "bullmq")


@pytest.fixture(params=DIALECTS)
def bench(request: pytest.FixtureRequest, twice: bool, client: Redis, open_queue: OpenQueue) -> WorkBench:
    return WorkBench(open_queue(protocol=request.param), client, twice)


@pytest.fixture(params=DIALECTS)
def filled(request: pytest.FixtureRequest, client: Redis, open_queue: OpenQueue) -> Filled:
    return Filled(open_queue(protocol=request.param), client)


@pytest.fixture
def pair(peer: Peer, node: Callable[..., NodePeer], client: Redis, redis_url: str, prefix: str) -> Iterator[Pair]:
    """Two queues, one for workers of Node and one for ours."""
    with closing(Pair(peer, node(peer.alias, prefix=prefix), client, redis_url, prefix)) as pair:
        yield pair


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a Redis with restrictions, each test runs once, with its first values: for BullMQ, if it can."""
    if config.getoption("--redis") == "plain" or config.getoption("--each-value"):
        return

    def is_second_choice(item: pytest.Item) -> tuple[bool, bool]:
        return item.get_closest_marker("soak") is not None, bool(set(OLDER) & set(values_of(item)))

    kept: dict[object, pytest.Item] = {}
    for item in sorted(items, key=is_second_choice):
        kept.setdefault((item.parent, getattr(item, "originalname", item.name)), item)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept.values()])
    items[:] = kept.values()


def values_of(item: pytest.Item) -> list[str]:
    """The values of the parameters that are names."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return [value for value in values if isinstance(value, str)]
