"""The order of a slot's queues follows their weights."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from spark_bull.worker.slot.queue_order import in_order


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
