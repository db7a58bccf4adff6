"""Bisection: only bad items fail, with few additional calls."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from spark_bull.worker.job.bisection import run_bisected


@given(st.integers(0, 300), st.sets(st.integers(0, 299), max_size=6))
def test_only_bad_items_fail_each_with_its_own_error(count: int, bad: set[int]) -> None:
    calls = 0

    def run(items: Sequence[int]) -> Sequence[int]:
        nonlocal calls
        calls += 1
        for item in items:
            if item in bad:
                raise ValueError(f"bad {item}")
        return [10 * item for item in items]

    parts = list(run_bisected(range(count), run))
    assert all(items for items, _ in parts)
    assert [n for items, _ in parts for n in items] == list(range(count))
    there = {n for n in bad if n < count}
    failed = [(list(items), str(error)) for items, error in parts if isinstance(error, Exception)]
    assert failed == [([n], f"bad {n}") for n in sorted(there)]
    assert all(outputs == [10 * n for n in items] for items, outputs in parts if not isinstance(outputs, Exception))
    assert calls <= 1 + 2 * len(there) * 9
