"""Readers of streams as each PySpark calls them, and what some supported versions cannot do."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import invalidate_caches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.util import PythonEvalType

from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.core.short_errors import short_errors

__all__ = ["PASSES_START", "FirstBatch", "LimitedReader", "ReadAllAvailable", "ReadLimit", "ReadMaxRows"]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    #: Whether latestOffset() gets the start and the limit of the batch, and AvailableNow is announced.
    PASSES_START: bool
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        PASSES_START = True
    except ImportError:
        PASSES_START = False

        class ReadLimit:
            pass

        @dataclass
        class ReadAllAvailable(ReadLimit):
            pass

        @dataclass
        class ReadMaxRows(ReadLimit):
            max_rows: int

        class SupportsTriggerAvailableNow:
            pass


@dataclass
class FirstBatch(ReadLimit):
    """The limit of the first batch where AvailableNow is not announced: the query may end with it.

    max_rows: None for all that is available.
    """

    max_rows: int | None


class LimitedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader whose batches have a limit. has_limit: whether also the first one, which may be the only one."""

    has_limit = True


@short_errors
class RefusedStream(DataSourceStreamReader):
    """Raises an error for the first offset: if the data source raises it, PySpark adds one of its own."""

    def __init__(self, error: SparkBullError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        raise self._error

    def latestOffset(self, start: Any = None, limit: Any = None) -> NoReturn:
        raise self._error

    def partitions(self, start: Any, end: Any) -> NoReturn:
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        raise self._error


T = TypeVar("T")


def read_offset(offset: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T]) -> T:
    """What `read` makes of an offset. Raises SparkBullError for one that it cannot read."""
    try:
        return read(offset)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise SparkBullError(
            f"expected an offset in the checkpoint that this kind of query has written, got: {str(offset)[:500]}; "
            "restore the checkpoint if it is damaged, and give a query with another `mode` or `view` one of its own"
        ) from error


def check_reader(given: str | None, stored: str) -> None:
    """Raises OptionError for a `readerId` that is not the one in the checkpoint."""
    if given not in (None, stored):
        raise OptionError(
            f"expected `readerId` to be {stored!r}, with which the checkpoint was written, or to be left out, got: "
            f"{given!r}; to read under another name, give another checkpoint"
        )


_NAMES: Final = {
    "SQL_BATCHED_UDF": "row",
    "SQL_ARROW_BATCHED_UDF": "row",
    "SQL_SCALAR_PANDAS_UDF": "pandas",
    "SQL_SCALAR_PANDAS_ITER_UDF": "pandas-iterator",
    # Since PySpark 4.1.
    "SQL_SCALAR_ARROW_UDF": "arrow",
    "SQL_SCALAR_ARROW_ITER_UDF": "arrow-iterator",
}
#: What the function of a UDF takes and returns, by the UDF's evalType.
KINDS: Final = {getattr(PythonEvalType, name): kind for name, kind in _NAMES.items() if hasattr(PythonEvalType, name)}


@dataclass(frozen=True)
class Capability:
    """what: in words. since: the first version that has it. has: whether this one has it. otherwise: what older do."""

    what: str
    since: str
    has: bool
    otherwise: str


CAPABILITIES: Final[Mapping[str, Capability]] = {
    "admission": Capability(
        "`maxJobsPerTrigger` and `maxEventsPerTrigger` have a default in the first batch of a query",
        "4.2",
        PASSES_START,
        "the first batch of a collecting query has all that is there, unless the option is given",
    ),
    "available-now": Capability(
        "a query with `availableNow` goes on until all is read that was there at its start",
        "4.2",
        PASSES_START,
        "it ends after one batch; after a crash, that is the batch which was open. The next run records that the batch "
        "is done: `removeOnRead` removes its jobs only then, and a new checkpoint with its `readerId` repeats it. With "
        "`mode=claim` it claims up to `maxJobsPerTrigger` jobs. `spark-bull collect --once` runs "
        "the query until it finds nothing new, so it may go on for as long as jobs keep finishing",
    ),
    "outage": Capability(
        "a query with `processingTime` goes on when Redis does not answer within `retryMs` in its first batch",
        "4.2",
        PASSES_START,
        "a collecting query fails then, as it could be one with `availableNow`; start it again. It goes on after each "
        "other batch",
    ),
    "progress": Capability(
        "the progress of a query shows the latest offset, from which you see what is left to read",
        "4.2",
        PASSES_START,
        "it shows the offset of the newest batch",
    ),
    "arrow-udf": Capability(
        "`@arrow_udf` as a processor",
        "4.1",
        "arrow" in KINDS.values(),
        "use `@pandas_udf`",
    ),
    "table-function": Capability(
        "`bull_call` in SQL",
        "4.1",
        find_spec("pyspark.sql.conversion") is not None,
        "use `spark_bull.call`, and make a view of the result",
    ),
    "pipelines": Capability(
        "declarative pipelines (`spark-pipelines`)",
        "4.1",
        find_spec("pyspark.pipelines") is not None,
        "use a streaming query",
    ),
}


def as_called(reader: LimitedReader) -> DataSourceStreamReader:
    """The reader for the calls of this PySpark."""
    return reader if PASSES_START else PositionedReader(reader)


class PositionedReader(DataSourceStreamReader):
    """Keeps the position between calls, in the process that lives as long as the query.

    Before the first latestOffset() of a query that continues from a checkpoint, Spark calls partitions(offset, offset)
    with its newest offset.
    """

    def __init__(self, reader: LimitedReader) -> None:
        self._reader = reader
        self._initial: dict[str, Any] | None = None
        #: The end of the newest batch that was planned, or the initial offset; None: unknown.
        self._planned: dict[str, Any] | None = None
        #: The end of the next batch.
        self._latest: dict[str, Any] | None = None
        limit = reader.getDefaultReadLimit()
        self._limit: ReadLimit = FirstBatch(getattr(limit, "max_rows", None) if reader.has_limit else None)

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            self._initial = self._reader.initialOffset()
        return self._initial

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        if self._planned is None:
            self._planned = self._latest = self.initialOffset()
        if self._latest == self._planned:
            self._latest = self._reader.latestOffset(self._planned, self._limit)
            self._limit = self._reader.getDefaultReadLimit()
        assert self._latest is not None
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end and self._latest not in (None, end):
            raise SparkBullError(
                "expected the offset of the checkpoint before the first request for the latest one, got it later: set "
                "spark.sql.streaming.triggerAvailableNowWrapper.enabled=false, or use "
                f"PySpark {CAPABILITIES['available-now'].since} or newer"
            )
        planned: Sequence[InputPartition] = [] if start == end else self._reader.partitions(start, end)
        self._planned = self._latest = end
        return planned

    def read(self, partition: InputPartition) -> Iterator[Any]:
        read: Iterator[Any] = self._reader.read(partition)
        return read

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)


def load(path: Sequence[str], pickled: bytes) -> Any:
    """Unpickles and creates the object. If a module is not found, `path` is added to the search path."""
    try:
        make, arguments = pickle.loads(pickled)
    except ModuleNotFoundError:
        sys.path.extend(path)
        invalidate_caches()
        make, arguments = pickle.loads(pickled)
    return make(*arguments)


def sent_along(make: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """Returns the result of `__reduce__` for an object created by `make(*arguments)`."""
    return load, (tuple(sys.path), cloudpickle.dumps((make, arguments)))


# By default `load` would be pickled by reference, and imported from the package that cannot be imported.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
