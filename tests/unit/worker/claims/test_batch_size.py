"""How many jobs a batch of a query has."""

from __future__ import annotations

from spark_bull.worker.claims.batch_size import LEAST, MOST, BatchSize


def test_batches_grow_with_the_backlog_while_they_are_quick() -> None:
    size = BatchSize()
    size.update(10, 1.0)
    assert size.current == LEAST  # A small batch shows only its fixed cost.
    for jobs, seconds, expected in (
        (LEAST // 2, 0.1, 5 * LEAST),
        (LEAST, 1.0, 5 * LEAST),
        (5 * LEAST, 2.0, MOST),
        (10, 1.0, MOST),
        (LEAST, 6.0, LEAST),
        (LEAST, 0.0, MOST),
        (MOST, 10.0, MOST // 2),
        (MOST, 60.0, LEAST),
    ):
        size.update(jobs, seconds)
        assert size.current == expected


def test_a_batch_begins_with_a_worthwhile_part_of_its_largest_size() -> None:
    size = BatchSize()
    assert size.enough == LEAST
    size.update(LEAST, 0.1)
    assert (size.current, size.enough) == (MOST, MOST // 4)
    assert BatchSize(7).enough == 7


def test_a_given_size_of_batches_is_kept() -> None:
    size = BatchSize(7)
    for seconds in (0.001, 100.0):
        size.update(7, seconds)
        assert (size.current, size.most) == (7, 7)
