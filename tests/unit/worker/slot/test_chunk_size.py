"""How many jobs a slot claims at once."""

from __future__ import annotations

from spark_bull.worker.slot.chunk_loop import ChunkSize


def test_chunks_grow_with_quick_jobs_and_shrink_with_slow_ones() -> None:
    size = ChunkSize(200)
    sizes = [size.current]
    for _ in range(5):
        size.update(size.current, 0.001)
        sizes.append(size.current)
    assert sizes == [16, 32, 64, 128, 200, 200]
    size.update(200, 20.0)
    assert size.current == 2
    size.update(2, 10.0)
    assert size.current == 1
