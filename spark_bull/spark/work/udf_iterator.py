"""Feeds the batches of all chunks of a slot to one call of a UDF over iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class UdfIterator:
    """Calls the function of an iterator UDF once, and continues its iterator with each chunk.

    What the function does before its loop, such as loading a model, is done once per slot, as Spark does it once per
    partition. The function is called again after it has raised an exception or ended its iterator. Picklable before
    the first chunk.
    """

    def __init__(self, function: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        self._function = function
        self._outputs: Iterator[Any] | None = None
        self._batch: Any = None

    def __call__(self, batch: Any, rows: int) -> list[Any]:
        """Returns the outputs for a batch with this number of rows.

        Raises what the function raises, and ValueError for an output that belongs to an earlier batch.
        """
        self._batch = batch
        outputs, found, is_new = [], 0, False
        try:
            while found < rows:
                if self._outputs is None:
                    self._outputs, is_new = iter(self._function(self._batches())), True
                output = next(self._outputs, None)
                if output is None:
                    self._outputs = None
                    if is_new or self._batch is None:
                        break
                    # An earlier call that read to the end of its iterator has ended: the batch needs another one.
                    continue
                if self._batch is not None:
                    raise ValueError("expected the UDF to yield as many values as it received, it yielded more")
                outputs.append(output)
                found += len(output)
        except BaseException:
            self._outputs = None
            raise
        return outputs

    def _batches(self) -> Iterator[Any]:
        while self._batch is not None:
            batch, self._batch = self._batch, None
            yield batch
