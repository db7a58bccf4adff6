"""Which rows begin a micro-batch, and when."""

from __future__ import annotations

from spark_bull.run.services.admission import Admission


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
