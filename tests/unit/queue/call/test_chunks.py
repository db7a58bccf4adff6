"""Rows are added in chunks of limited number and size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_bull.queue.call.chunks import MOST_BYTES, chunks


@given(sizes=st.lists(st.integers(0, 700_000), max_size=30), most=st.integers(1, 5))
def test_each_row_is_in_one_chunk_within_the_limits(sizes: list[int], most: int) -> None:
    texts = ["x" * size for size in sizes]
    found = list(chunks(texts, most))
    assert [row for start, stop in found for row in range(start, stop)] == list(range(len(texts)))
    for start, stop in found:
        assert 1 <= stop - start <= most
        assert stop - start == 1 or sum(sizes[start:stop]) <= MOST_BYTES
