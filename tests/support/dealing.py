"""The order of the tests in several processes of pytest-xdist."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest


def deal(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Lets each process start with an equal share of the tests that take long, so that none is left at the end.

    `--dist worksteal` gives each process a run of equally many tests, in the order of this list; a process without
    tests then takes over the last ones of another. The tests of a module with Spark stay together, since they share
    fixtures, and one process of four starts no session: the other three have time for all tests with Spark.
    """
    slow: list[pytest.Item] = []
    slow_with_spark: list[list[pytest.Item]] = []
    modules: dict[Path, list[pytest.Item]] = defaultdict(list)
    brief: list[pytest.Item] = []
    for item in items:
        with_spark = item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ())
        if item.get_closest_marker("slow"):
            slow_with_spark.append([item]) if with_spark else slow.append(item)
        elif with_spark:
            modules[item.path].append(item)
        else:
            brief.append(item)
    hands: list[list[pytest.Item]] = [[] for _ in range(processes)]
    sessions = hands[processes // 4 :]
    for group in [*slow_with_spark, *sorted(modules.values(), key=len, reverse=True)]:
        min(sessions, key=len).extend(group)
    for item in slow:
        min(hands, key=len).append(item)
    dealt: list[pytest.Item] = []
    for number, hand in enumerate(hands):
        rest = max(0, (len(items) - len(dealt)) // (processes - number) - len(hand))
        dealt += hand + brief[:rest]
        del brief[:rest]
    return dealt + brief
