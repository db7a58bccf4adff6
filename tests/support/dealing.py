"""The order of the tests in several processes of pytest-xdist."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest


def deal(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Lets each process start with an equal share of the tests that take long, so that none is left at the end.

    `--dist worksteal` gives each process a run of equally many tests, in the order of this list; a process without
    tests then takes over the last ones of another. Half of the processes get the tests that use the session of the
    tests, whose JVM takes much more CPU for its first tests than for later ones. The others get those that start
    programs, and those with a browser. The tests of a module stay together, since they share fixtures.
    """
    hands: list[list[pytest.Item]] = [[] for _ in range(processes)]
    others, sessions = hands[: processes // 2] or hands, hands[processes // 2 :]
    long, rest = split(items, lambda item: "slow" in marks(item))
    with_session, rest = split(rest, uses_session)
    apart, brief = split(rest, lambda item: bool(marks(item) & {"spark", "browser"}))
    for item in long:
        min(sessions if uses_session(item) else others, key=len).append(item)
    for group in by_module(with_session):
        min(sessions, key=len).extend(group)
    for group in by_module(apart):
        min(others, key=len).extend(group)
    dealt: list[pytest.Item] = []
    for number, hand in enumerate(hands):
        more = max(0, (len(items) - len(dealt)) // (processes - number) - len(hand))
        dealt += hand + brief[:more]
        del brief[:more]
    return dealt + brief


def marks(item: pytest.Item) -> set[str]:
    return {marker.name for marker in item.iter_markers()}


def uses_session(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def split(
    items: list[pytest.Item], condition: Callable[[pytest.Item], bool]
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    chosen: tuple[list[pytest.Item], list[pytest.Item]] = [], []
    for item in items:
        chosen[not condition(item)].append(item)
    return chosen


def by_module(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """The tests of each module, the largest module first."""
    modules: dict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        modules[item.path].append(item)
    return sorted(modules.values(), key=len, reverse=True)
