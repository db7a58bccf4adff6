"""All orders of the calls of parties are tried; in none is a promise of a protocol broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from spark_bull.embedded.redis import EmbeddedRedis
from spark_bull.queue.bull_queue import BullQueue
from tests.proof.orders import EveryOrder, Setting
from tests.proof.protocols import Claims
from tests.proof.table import wrong_orders


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def own(server: EmbeddedRedis) -> Iterator[Redis]:
    """A server that each order begins empty."""
    with Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def queue(server: EmbeddedRedis) -> Iterator[BullQueue]:
    with BullQueue("q", url=server.url, protocol="bullmq") as queue:
        yield queue


def caller(queue: BullQueue, name: str) -> Callable[[], None]:
    """A party of two calls, whose order with others Redis shows."""

    def call() -> None:
        for _ in range(2):
            queue.handle.connection.call("RPUSH", "calls", name)

    return call


def test_each_order_is_tried_and_each_death_before_and_after_a_call(own: Redis, queue: BullQueue) -> None:
    """a can die before its first call (1 order), after it (3), or after the second one (6), or live (6)."""

    def begin() -> Setting:
        own.flushall()
        return Setting({"a": caller(queue, "a"), "b": caller(queue, "b")}, ["a"], lambda: "")

    orders = EveryOrder(own, begin)
    left = [b"".join(own.lrange("calls", 0, -1)) for _ in orders.tried()]
    assert {*left} >= {b"bb", b"abb", b"bab", b"bba", b"aabb", b"abab", b"abba", b"baab", b"baba", b"bbaa"}
    assert orders.count == 16


def test_states_to_which_two_orders_lead_are_tried_once_and_counted_twice(own: Redis, queue: BullQueue) -> None:
    def begin() -> Setting:
        own.flushall()
        connection = queue.handle.connection
        parties = {name: lambda name=name: [connection.call("SET", name, n) for n in range(2)] for name in "ab"}
        return Setting(parties, [], lambda: "")

    orders = EveryOrder(own, begin)
    tried = len([*orders.tried()])
    assert orders.count == 6
    assert tried < 6


def test_an_update_that_is_lost_in_some_orders_is_found(own: Redis, queue: BullQueue) -> None:
    def begin() -> Setting:
        own.flushall()
        connection = queue.handle.connection

        def count_up() -> None:
            connection.call("SET", "n", int(connection.call("GET", "n") or 0) + 1)

        return Setting({"a": count_up, "b": count_up}, [], lambda: "")

    assert {own.get("n") for _ in EveryOrder(own, begin).tried()} == {b"1", b"2"}


def test_no_order_of_claims_rescues_and_outcomes_breaks_a_promise(own: Redis, server: EmbeddedRedis) -> None:
    """`make faults` tries the other protocols, too."""
    orders = EveryOrder(own, (protocol := Claims(own, server.url)).begin)
    assert [*wrong_orders(protocol, orders)] == []
    assert orders.count > 50
