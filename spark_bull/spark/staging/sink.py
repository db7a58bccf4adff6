"""The writers that Spark gets: it calls `write` in tasks, `commit` and `abort` on the driver.

`write` stages chunks that workers do not see; a failed, speculative or zombie attempt has its own stage keys, which are
not committed. `commit` registers the stages of the successful attempts; from then on any process can finish the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeAlias, TypeVar, cast

from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import OptionError
from spark_bull.spark.platform.lazy_arrow import pa
from spark_bull.spark.platform.writers import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
    refuse_created_table,
)

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


def _imported(function: Callable[..., Any]) -> _Imported:
    return _Imported(function.__module__, function.__name__)


def _no_discard(plan: object, messages: object) -> None:
    """A failed write leaves nothing."""


@short_errors
class Sink(DataSourceStreamArrowWriter, DataSourceArrowWriter, Generic[P, W]):
    """The writer of one `save()`, or of one micro-batch. Picklable.

    write, commit, discard: functions of modules. The last two get the messages of the tasks that were successful.
    """

    def __init__(
        self,
        plan: P,
        write: Callable[[P, Batches], W],
        commit: Callable[[P, list[W]], None],
        discard: Callable[[P, list[W]], object] = _no_discard,
    ) -> None:
        self.plan = plan
        self._write, self._commit, self._discard = _imported(write), _imported(commit), _imported(discard)

    def write(self, iterator: Batches) -> W:
        refuse_created_table()
        return cast("W", self._write(self.plan, iterator))

    def commit(self, messages: Messages, batchId: int | None = None) -> None:
        self._commit(self.plan, [one for one in messages if one is not None])

    def abort(self, messages: Messages, batchId: int | None = None) -> None:
        self._discard(self.plan, [one for one in messages if one is not None])


def refuse_overwrite(why: str, *, is_stream: bool) -> OptionError:
    """The error for mode("overwrite") or outputMode("complete")."""
    modes = 'outputMode("append"), got "complete"' if is_stream else 'mode("append"), got mode("overwrite")'
    return OptionError(f"{why}: expected {modes}")
