"""Splits calls into chunks: what one script adds or ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

#: Calls of one script that ends or gathers them: to end so many takes Redis 2 ms.
CHUNK: Final = 100
#: Calls of one script that adds them.
ADDED: Final = 250
#: Characters of the payloads of one script.
MOST_BYTES: Final = 1 << 20


def chunks(texts: Sequence[str], most: int = CHUNK) -> Iterator[tuple[int, int]]:
    """Splits rows into chunks of limited number and size: their first rows, and the rows after their last ones."""
    start = size = 0
    for stop, text in enumerate(texts):
        if stop > start and (stop - start == most or size + len(text or "") > MOST_BYTES):
            yield start, stop
            start, size = stop, 0
        size += len(text or "")
    if start < len(texts):
        yield start, len(texts)
