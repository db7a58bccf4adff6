"""Which rows begin a micro-batch, and when."""

from __future__ import annotations

import pytest

from spark_bull.run.services.admission import Admission


def test_a_batch_waits_for_enough_rows_or_for_its_longest_delay_from_the_first_one_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_000.0
    monkeypatch.setattr("spark_bull.run.services.admission.monotonic_s", lambda: now)
    admission = Admission(3, 60_000)
    seen = []
    for after_s, rows in ((0, 0), (50, 1), (59, 2), (1, 2), (0, 1), (59, 1), (0, 3), (0, 2), (60, 2)):
        now += after_s
        seen.append((rows, admission.waits(rows)))
    first = [(0, False), (1, True), (2, True), (2, False)]
    assert seen == [*first, (1, True), (1, True), (3, False), (2, True), (2, False)]
    assert not Admission(3, 0).waits(1)
    assert not Admission(1, 60_000).waits(1)


def test_queues_with_rows_share_the_bytes_and_what_is_left_waits_for_no_more_rows() -> None:
    asked: list[tuple[str, int, int, int]] = []

    def end_of(queue: str, start: int, stop: int, size: int) -> int:
        asked.append((queue, start, stop, size))
        return min(stop, start + size // 10)

    admission = Admission(50, 60_000, 100)
    assert admission.waits(4)
    assert admission.cut({"a": (0, 20), "b": (5, 7), "idle": (3, 3)}, end_of) == {"a": 5, "b": 7, "idle": 3}
    assert asked == [("a", 0, 20, 50), ("b", 5, 7, 50)]
    assert not admission.waits(15), "they have waited"
    assert admission.cut({"a": (5, 15), "b": (7, 7)}, end_of) == {"a": 15, "b": 7}
    assert admission.waits(15)
    assert Admission(1, 0).cut({"a": (0, 20)}, end_of) == {"a": 20}
