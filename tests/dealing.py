"""The order of the tests in several processes of pytest-xdist."""

from __future__ import annotations

from collections import defaultdict
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
    modules: dict[tuple[bool, Path], list[pytest.Item]] = defaultdict(list)
    brief: list[pytest.Item] = []
    for item in items:
        marks = {marker.name for marker in item.iter_markers()}
        uses_session = "spark" in getattr(item, "fixturenames", ())
        if "slow" in marks:
            min(sessions if uses_session else others, key=len).append(item)
        elif uses_session or marks & {"spark", "browser"}:
            modules[uses_session, item.path].append(item)
        else:
            brief.append(item)
    for (uses_session, _), module in sorted(modules.items(), key=lambda one: len(one[1]), reverse=True):
        min(sessions if uses_session else others, key=len).extend(module)
    dealt: list[pytest.Item] = []
    for number, hand in enumerate(hands):
        more = max(0, (len(items) - len(dealt)) // (processes - number) - len(hand))
        dealt += hand + brief[:more]
        del brief[:more]
    return dealt + brief
