"""The number of shards is changed while jobs are written and processed: none is lost, and each key keeps its order."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull import BullQueue, EmbeddedRedis, OptionError, RunningJob, SparkBullError, shard_names
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.parts import Options
from spark_bull.core.options.table import WriteOptions
from spark_bull.core.queue.dispatch import registration
from spark_bull.core.queue.shards import reshard as module
from spark_bull.core.queue.shards.layout import forget_layout, queues_of
from spark_bull.core.queue.shards.reshard import Draining, reshard
from spark_bull.core.store.connection import Connection
from tests.support.redis_servers import RedisCluster
from tests.support.traffic import send_scripts_twice
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.without_spark import Sink
from tests.support.worker import OurWorker

ROWS = StructType().add("key", StringType()).add("n", IntegerType())
KEYS, MOST = 9, 5


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedRedis() as a, EmbeddedRedis() as b:
        yield f"{a.url} {b.url}"


@pytest.fixture(params=["two servers"])
def raw(request: pytest.FixtureRequest, prefix: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The options of a write to a queue with shards by key."""
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    if request.param == "a cluster":
        cluster: RedisCluster = request.getfixturevalue("cluster")
        url = cluster.url
    else:
        url = request.getfixturevalue("redis_url" if request.param == "one server" else "servers")
    return {"url": url, "prefix": prefix, "protocol": "bullmq", "queue": "mail", "shardBy": "key"}


def options_of(raw: dict[str, str]) -> Options:
    return parse_options(
        {name: value for name, value in raw.items() if name not in ("shards", "shardBy")}, WriteOptions
    )


def queues(raw: dict[str, str], shards: int) -> list[BullQueue]:
    return [
        BullQueue(name, url=raw["url"], prefix=raw["prefix"], protocol="bullmq") for name in shard_names("mail", shards)
    ]


def waiting(raw: dict[str, str], shards: int) -> list[int]:
    return [queue.counts()["wait"] for queue in queues(raw, shards)]


def staged(raw: dict[str, str], rows: Sequence[tuple[str, int]], shards: str) -> Sink:
    sink = Sink(raw | {"shards": shards}, ROWS)
    sink.task([{"key": key, "n": n} for key, n in rows])
    return sink


def ignore(_: Draining) -> None:
    pass


@pytest.mark.parametrize(
    "raw", ["one server", pytest.param("a cluster", marks=pytest.mark.rest), "two servers"], indirect=True
)
def test_jobs_keep_their_order_by_key_while_the_number_of_shards_changes(raw: dict[str, str]) -> None:
    seen: dict[str, list[int]] = defaultdict(list)
    lock = threading.Lock()

    def note(job: RunningJob) -> None:
        with lock:
            seen[job.data["key"]].append(job.data["n"])

    numbers = count()
    written = 0

    def write(shards: str = "auto") -> None:
        nonlocal written
        n = next(numbers)
        while True:
            sink = staged(raw, [(f"k{key}", n) for key in range(KEYS)], shards)
            try:
                sink.commit()
            except SparkBullError as error:
                # The change was made between its plan and its commit.
                if "nothing was written; run the write again" not in str(error):
                    raise
                continue
            written = n + 1
            return

    write("2")
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        for queue in queues(raw, MOST):
            stack.enter_context(OurWorker(queue.handle, note))
        for shards in (MOST, 3):
            change = pool.submit(reshard, options_of(raw), "mail", shards, ignore)
            for _ in range(5):
                write()
            assert change.result(timeout=PATIENCE_S).count == shards
        wait_until(lambda: sum(map(len, list(seen.values()))) == KEYS * written, "all jobs to be processed")
    assert seen == {f"k{key}": [*range(written)] for key in range(KEYS)}


def test_a_write_that_was_planned_before_is_added_before_the_change_or_refused(raw: dict[str, str]) -> None:
    staged(raw, [("a", 0)], "2").commit()
    early, late = staged(raw, [("b", 1)], "2"), staged(raw, [("c", 2)], "2")
    lefts: list[str] = []

    def opened(shards: str) -> int:
        return len(queues_of(parse_options({**raw, "shards": shards}, WriteOptions), "mail"))

    def progress(left: Draining) -> None:
        lefts.append(str(left))
        assert [opened("2"), opened("4"), opened("auto")] == [4, 4, 4], "a worker sees the present and the next shards"
        if len(lefts) == 1:
            early.commit()
            assert sum(waiting(raw, 2)) == 2
            for queue in queues(raw, 2):
                queue.drain()

    with pytest.raises(OptionError, match="to be 2, as queue mail has as many shards, got: 4"):
        opened("4")
    layout = reshard(options_of(raw), "mail", 4, progress)
    assert lefts[0] == "1 wait"
    assert layout.count == 4
    with pytest.raises(SparkBullError, match=r"to stay as they were when this write began, but their number has chang"):
        late.commit()
    late.abort()
    assert sum(waiting(raw, 4)) == 0
    with pytest.raises(OptionError, match="expected `shards` to be 4, as queue mail has as many shards, got: 2"):
        staged(raw, [], "2")
    staged(raw, [("c", 2)], "4").commit()
    assert sum(waiting(raw, 4)) == 1


@pytest.mark.parametrize("raw", ["one server", "two servers"], indirect=True)
def test_a_write_after_the_last_look_holds_up_the_change(raw: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is finished and worked before the switch: only the count of writes tells that the look is out of date."""
    staged(raw, [], "2").commit()
    late = staged(raw, [(key, 0) for key in "abcdef"], "2")
    script, switched = Connection.script, list[object]()

    def write_before(self: Connection, name: str, *rest: object) -> object:
        if name != "shards/switch":
            return script(self, name, *rest)
        if not switched:
            late.commit()
            for queue in queues(raw, 2):
                queue.drain()
        switched.append(script(self, name, *rest))
        return switched[-1]

    monkeypatch.setattr(Connection, "script", write_before)
    assert reshard(options_of(raw), "mail", 4, ignore).count == 4
    assert switched == [0, 1]


def test_a_write_that_is_only_prepared_does_not_hold_up_the_change(
    raw: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its driver may have died. One that was slow is refused."""
    monkeypatch.setattr(registration, "KEYS_PER_CALL", 8)
    staged(raw, [], "2").commit()
    confirm, lefts = registration._confirm, list[str]()

    def late(*given: Any) -> Any:
        slow.undo()
        assert reshard(options_of(raw), "mail", 4, lambda left: lefts.append(str(left))).count == 4
        staged(raw, [(key, 1) for key in "abcdef"], "auto").commit()
        return confirm(*given)

    write = staged(raw, [(key, 0) for key in "abcdef"], "2")
    with monkeypatch.context() as slow:
        slow.setattr(registration, "_confirm", late)
        with pytest.raises(SparkBullError, match="but their number has changed: nothing was written"):
            write.commit()
    assert lefts == ["nothing"]
    assert sum(waiting(raw, 4)) == 6


@pytest.mark.parametrize("raw", ["one server"], indirect=True)
def test_a_write_that_is_confirmed_and_not_opened_holds_up_the_change(
    raw: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "KEYS_PER_CALL", 8)
    staged(raw, [], "2").commit()
    lefts: list[str] = []

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    def work(left: Draining) -> None:
        lefts.append(str(left))
        for queue in queues(raw, 2):
            queue.drain()

    with monkeypatch.context() as dying:
        dying.setattr(registration, "open_prepared", die)
        with pytest.raises(KeyboardInterrupt):
            staged(raw, [(key, 0) for key in "abcdef"], "2").commit()
    assert reshard(options_of(raw), "mail", 4, work).count == 4
    assert lefts == ["6 wait", "nothing"]


def test_jobs_that_tasks_have_added_before_the_change_are_named(raw: dict[str, str]) -> None:
    staged(raw, [], "2").commit()
    late = staged(raw | {"delivery": "at-least-once"}, [("a", 0)], "2")
    for queue in queues(raw, 2):
        queue.drain()
    reshard(options_of(raw), "mail", 4, ignore)
    said = "its jobs are in the shards that the queue had before: start workers for these"
    with pytest.raises(SparkBullError, match=said):
        late.commit()


def test_a_waiting_write_finishes_the_change_of_a_process_that_died(raw: dict[str, str]) -> None:
    staged(raw, [("a", 0)], "2").commit()

    class Died(BaseException):
        pass

    def die(_: Draining) -> None:
        raise Died

    with pytest.raises(Died):
        reshard(options_of(raw), "mail", 4, die)
    with pytest.raises(SparkBullError, match="is being changed from 2 to 4: wait, or give that up with --shards 2"):
        reshard(options_of(raw), "mail", 8, ignore)
    for queue in queues(raw, 2):
        queue.drain()
    staged(raw, [(f"k{key}", 1) for key in range(20)], "4").commit()
    assert sum(waiting(raw, 4)) == 20
    assert sum(waiting(raw, 4)[2:]) > 0


def test_a_change_is_given_up_with_the_present_number(raw: dict[str, str]) -> None:
    staged(raw, [("a", 0)], "2").commit()
    given_up: list[Draining] = []

    def give_up(left: Draining) -> None:
        given_up.append(left)
        assert reshard(options_of(raw), "mail", 2, ignore).next is None

    with pytest.raises(SparkBullError, match="but the change was given up meanwhile: it has 2"):
        reshard(options_of(raw), "mail", 4, give_up)
    assert len(given_up) == 1
    staged(raw, [("b", 1)], "2").commit()
    assert sum(waiting(raw, 2)) == 2
    with pytest.raises(OptionError, match="expected queue none to have shards, found none"):
        reshard(options_of(raw), "none", 2, ignore)


def test_each_step_has_the_same_effect_when_it_is_sent_twice(
    raw: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = send_scripts_twice(monkeypatch)
    staged(raw, [], "2").commit()
    layout = reshard(options_of(raw), "mail", 3, ignore)
    assert forget_layout(options_of(raw), "mail")
    assert {*names} >= {f"shards/{name}" for name in ("declare", "begin", "unfinished", "switch", "forget")}
    assert (layout.count, layout.most, layout.next) == (3, 3, None)
