"""Graphs of jobs that depend on each other."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from spark_bull.errors import OptionError
from spark_bull.queue.dispatch.graph import MAX_DEPTH, graph_of

DEPENDENCIES = some.lists(some.lists(some.integers(0, 7), max_size=4), min_size=8, max_size=8)


@given(DEPENDENCIES)
def test_a_graph_is_taken_or_a_cycle_of_it_is_named(numbers: list[list[int]]) -> None:
    rows = [(f"j{n}", [f"j{other}" for other in others]) for n, others in enumerate(numbers)]
    left = {job_id: set(others) for job_id, others in rows}
    while ready := [job_id for job_id, others in left.items() if not others & left.keys()]:
        for job_id in ready:
            del left[job_id]
    if not left:
        assert graph_of(rows) == {job_id: [*dict.fromkeys(others)] for job_id, others in rows}
        return
    with pytest.raises(OptionError, match="without a cycle") as error:
        graph_of(rows)
    cycle = re.findall(r"j\d", str(error.value))
    assert cycle[0] == cycle[-1]
    assert all(other in dict(rows)[job_id] for job_id, other in pairwise(cycle))


def test_a_long_cycle_is_shown_by_its_first_ids() -> None:
    rows = [(f"j{n}", [f"j{(n + 1) % 50}"]) for n in range(50)]
    with pytest.raises(OptionError, match=r"j7 depends on … depends on j0$"):
        graph_of(rows)


def test_a_row_of_jobs_may_be_as_long_as_the_bound() -> None:
    rows = [(f"j{n}", [f"j{n - 1}"] if n else []) for n in range(MAX_DEPTH)]
    assert len(graph_of(rows)) == MAX_DEPTH
