"""Parents of flows, as processors and operators see them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from spark_bull.errors import DialectError, OptionError
from spark_bull.queue.bull_queue import BullQueue
from tests.support.work_bench import WorkBench


@pytest.fixture(params=["bullmq"])
def bench(request: pytest.FixtureRequest, client: Redis, redis_url: str, prefix: str) -> Iterator[WorkBench]:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=request.param) as queue:
        yield WorkBench(queue, client, twice=False)


def test_the_values_of_many_children_are_read_in_parts_up_to_a_limit(bench: WorkBench) -> None:
    values = {f"{bench.handle.keys.prefix}:c:{n}": str(n) for n in range(3_000)}
    bench.client.hset(bench.handle.keys.children_values("p"), mapping=values)
    assert bench.queue.get_children_values("p") == {child: int(value) for child, value in values.items()}
    with pytest.raises(OptionError, match=r"at most 2,999 values of children of job p of queue q, found 3,000"):
        bench.queue.get_children_values("p", limit=2_999)


def test_a_value_that_is_not_json_is_a_text(bench: WorkBench) -> None:
    bench.client.hset(bench.handle.keys.children_values("p"), mapping={"bull:c:1": "{oops", "bull:c:2": b"\xff"})
    assert bench.queue.get_children_values("p") == {"bull:c:1": "{oops", "bull:c:2": "�"}


@pytest.mark.parametrize("bench", ["bull-1", "bull"], indirect=True)
def test_jobs_of_bull_have_no_children(bench: WorkBench) -> None:
    for read in (bench.queue.get_children_values, bench.queue.get_children_failures):
        with pytest.raises(DialectError, match="expected a queue of BullMQ"):
            read("1")
