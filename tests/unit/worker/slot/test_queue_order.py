"""The order of a slot's queues follows their weights."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from spark_bull.worker.slot.queue_order import TURN, Turns, in_order


class Queue(NamedTuple):
    name: str
    weight: int


def test_queues_without_weights_keep_their_order() -> None:
    queues = [Queue("b", 0), Queue("a", 0)]
    assert in_order(queues) is queues


def test_the_first_queue_is_drawn_in_proportion_to_the_weights() -> None:
    random.seed(7)
    queues = [Queue("mail", 1), Queue("urgent", 3), Queue("report", 2)]
    first = Counter(in_order(queues)[0].name for _ in range(6_000))
    assert 900 < first["mail"] < 1_100
    assert 2_850 < first["urgent"] < 3_150
    assert 1_850 < first["report"] < 2_150
    assert {queue.name for queue in in_order(queues)} == {"mail", "urgent", "report"}


def test_a_slot_stays_with_a_queue_that_has_jobs_and_draws_in_proportion_then() -> None:
    random.seed(7)
    queues = [Queue("mail", 1), Queue("urgent", 3)]
    turns, claimed = Turns(queues), []
    for _ in range(2_000 * TURN):
        first = turns.order()[0]
        claimed.append(first.name)
        turns.claimed(first)
    parts = [claimed[start : start + TURN] for start in range(0, len(claimed), TURN)]
    assert all(len(set(part)) == 1 for part in parts)
    assert 450 < Counter(part[0] for part in parts)["mail"] < 550


def test_a_slot_stays_with_the_queue_that_had_jobs_while_the_first_one_has_none() -> None:
    empty, full = Queue("empty", 1), Queue("full", 1)
    turns = Turns([empty, full])
    turns.claimed(full)
    assert [turns.order()[0] for _ in range(20)] == [full] * 20


def test_a_slot_asks_the_first_of_queues_without_weights_each_time() -> None:
    queues = [Queue("first", 0), Queue("second", 0)]
    turns = Turns(queues)
    turns.claimed(queues[1])
    assert turns.order() is queues
