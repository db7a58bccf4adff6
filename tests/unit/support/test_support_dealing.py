"""The order of the tests in several processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.dealing import deal


class Item:
    """What the order depends on."""

    def __init__(self, module: str, *marks: str, session: bool = False) -> None:
        self.path = Path(module)
        self.fixturenames = ["spark"] if session else []
        self._marks = marks

    def iter_markers(self) -> Iterator[Any]:
        return (getattr(pytest.mark, name) for name in self._marks)


def hands_of(items: list[Item], processes: int) -> list[list[Item]]:
    """The tests with which each process starts, as `--dist worksteal` cuts the list."""
    dealt: list[Any] = deal(list(items), processes)  # type: ignore[arg-type]
    assert sorted(map(id, dealt)) == sorted(map(id, items))
    hands = []
    for left in range(processes, 0, -1):
        hands.append(dealt[: len(dealt) // left])
        del dealt[: len(dealt) // left]
    return hands


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
def test_half_of_the_processes_use_sessions_and_the_others_start_programs(processes: int) -> None:
    brief = [Item("brief") for _ in range(100)]
    sessions = [Item(module, "spark", session=True) for module in "abcdefgh" for _ in range(3)]
    apart = [Item(module, mark) for module, mark in (("k", "spark"), ("l", "browser")) for _ in range(3)]
    hands = hands_of([*brief, *sessions, *apart], processes)
    middle = processes // 2
    assert all(item.fixturenames or item in brief for hand in hands[middle:] for item in hand if processes > 1)
    assert not any(item.fixturenames for hand in hands[:middle] for item in hand)
    for hand in hands:
        heavy = [item for item in hand if item not in brief]
        assert hand[: len(heavy)] == heavy
        modules = [item.path for item in heavy]
        assert modules == [path for path in dict.fromkeys(modules) for _ in range(3)]


def test_the_longest_tests_are_the_first_of_each_process() -> None:
    long = [Item("a", "slow") for _ in range(3)] + [Item("b", "slow", "spark", session=True) for _ in range(3)]
    others = [Item("c") for _ in range(60)] + [Item("d", "spark", session=True) for _ in range(10)]
    hands = hands_of([*others, *long], 6)
    assert [hand[0] for hand in hands] == long
