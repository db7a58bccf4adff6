"""The collector of a query: several queues, and their places when one is not there, or Redis falls back."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue
from spark_bull.errors import ResultsLost
from spark_bull.options import COLLECT, parse_options
from spark_bull.runtime.collector import Collector, shares
from tests.support.work_bench import WorkBench, completed


@pytest.fixture
def benches(client: Redis, redis_url: str, prefix: str) -> dict[str, WorkBench]:
    queues = {name: BullQueue(name, url=redis_url, prefix=prefix, protocol="bullmq") for name in ("mail", "reports")}
    return {name: WorkBench(queue, client, twice=False) for name, queue in queues.items()}


def finish(bench: WorkBench, count: int) -> None:
    bench.add(count)
    bench.work(completed(bench.claim(count)))


def collector(bench: WorkBench, queue: str, **more: Any) -> Collector:
    options = {"url": bench.handle.connection.settings.url, "prefix": bench.handle.keys.prefix, "queue": queue}
    return Collector(parse_options(options | more, COLLECT), "mine")


def leave(known: Collector) -> None:
    """As if the query had been killed: its connection goes."""
    known._connection.close()


def test_a_queue_that_is_left_out_for_a_while_keeps_its_place(benches: dict[str, WorkBench]) -> None:
    for bench in benches.values():
        finish(bench, 3)
    both = collector(benches["mail"], "mail,reports")
    done = both.advance(both.first_positions(), None)
    assert done == {"mail": 3, "reports": 3}
    leave(both)

    one = collector(benches["mail"], "mail")
    assert one.advance(done, None) == done
    leave(one)

    finish(benches["reports"], 2)
    again = collector(benches["mail"], "mail,reports")
    assert again.advance(done, None) == {"mail": 3, "reports": 5}
    leave(again)


def test_a_redis_that_falls_back_is_told(benches: dict[str, WorkBench]) -> None:
    bench = benches["mail"]
    finish(bench, 3)
    known = collector(bench, "mail")
    done = known.advance({}, None)
    keys = bench.handle.keys.results("mine")
    bench.client.delete(keys["ledger"])
    with pytest.raises(ResultsLost, match="its results end at 0, not 3"):
        known.advance(done, None)
    leave(known)

    careless = collector(bench, "mail", failOnDataLoss="false")
    assert careless.advance(done, None) == {"mail": 6}
    leave(careless)


@pytest.mark.parametrize("time", ["0", "1960-01-01"])
def test_a_time_before_all_jobs_is_the_earliest(benches: dict[str, WorkBench], time: str) -> None:
    finish(benches["mail"], 2)
    known = collector(benches["mail"], "mail", startingTimestamp=time)
    assert known.advance({}, None) == {"mail": 2}
    leave(known)


def test_what_a_batch_takes_is_dealt_out_to_the_queues() -> None:
    assert shares({"a": 100, "b": 1, "c": 40}, 61) == {"a": 30, "b": 1, "c": 30}
    assert shares({"a": 5, "b": 1}, 60) == {"a": 5, "b": 1}
    assert shares({}, 60) == {}
