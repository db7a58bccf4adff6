"""The writers that Spark gets: it calls `write` in tasks, `commit` and `abort` on the driver.

`write` stages chunks that workers do not see; a failed, speculative or zombie attempt has its own stage keys, which are
not committed. `commit` registers the stages of the successful attempts; from then on any process can finish the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeAlias, TypeVar, cast

from spark_bull.core.errors import OptionError
from spark_bull.core.short_errors import short_errors
from spark_bull.spark.platform.created_table import refuse_created_table
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.platform.writers import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

P = TypeVar("P")
W = TypeVar("W", bound=WriterCommitMessage)
Batches: TypeAlias = "Iterator[pa.RecordBatch]"
Messages: TypeAlias = list[WriterCommitMessage | None]


@dataclass(frozen=True)
class _Imported:
    """A function whose module is imported when it is called: Spark starts a process for each step, which needs one."""

    module: str
    name: str

    def __call__(self, *arguments: Any) -> Any:
        return getattr(import_module(self.module), self.name)(*arguments)


def _imported(function: Any) -> _Imported | None:
    done = function is None or isinstance(function, _Imported)
    return function if done else _Imported(function.__module__, function.__name__)


@dataclass(frozen=True)
class WriteSteps(Generic[P, W]):
    """What a mode of writes does with its plan. Picklable, as the functions are defined in modules.

    commit, discard: get the messages of the tasks that were successful. discard: None if a failed write leaves nothing.
    """

    plan: P
    write: Callable[[P, Batches], W]
    commit: Callable[[P, list[W]], None]
    discard: Callable[[P, list[W]], object] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return WriteSteps, (self.plan, *map(_imported, (self.write, self.commit, self.discard)))


@short_errors
class BatchSink(DataSourceArrowWriter, Generic[P, W]):
    """The writer of one `save()`."""

    def __init__(self, steps: WriteSteps[P, W]) -> None:
        self._steps = steps

    def write(self, iterator: Batches) -> W:
        refuse_created_table()
        return self._steps.write(self._steps.plan, iterator)

    def commit(self, messages: Messages) -> None:
        self._steps.commit(self._steps.plan, cast("list[W]", [one for one in messages if one is not None]))

    def abort(self, messages: Messages) -> None:
        if self._steps.discard is not None:
            self._steps.discard(self._steps.plan, cast("list[W]", [one for one in messages if one is not None]))


@short_errors
class StreamSink(DataSourceStreamArrowWriter, Generic[P, W]):
    """The writer of one micro-batch."""

    def __init__(self, steps: WriteSteps[P, W]) -> None:
        self._batch = BatchSink(steps)

    def write(self, iterator: Batches) -> W:
        return self._batch.write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        self._batch.commit(messages)

    def abort(self, messages: Messages, batchId: int) -> None:
        self._batch.abort(messages)


def refuse_overwrite(why: str, *, is_stream: bool) -> OptionError:
    """The error for mode("overwrite") or outputMode("complete")."""
    modes = 'outputMode("append"), got "complete"' if is_stream else 'mode("append"), got mode("overwrite")'
    return OptionError(f"{why}: expected {modes}")
