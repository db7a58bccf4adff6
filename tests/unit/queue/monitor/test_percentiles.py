"""Percentiles of durations."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bull.queue.monitor.stats import percentiles


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=400))
def test_percentiles_are_those_of_pandas(durations: list[int]) -> None:
    found = percentiles(durations)
    assert found is not None
    of_pandas = pd.Series(durations).quantile([0.5, 0.95, 0.99])
    assert [found.p50, found.p95, found.p99] == pytest.approx(list(of_pandas))


def test_without_durations_there_are_no_percentiles() -> None:
    assert percentiles([]) is None
