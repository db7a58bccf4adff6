"""What some supported versions of PySpark can't do. docs/reference/pyspark.md shows the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from pyspark.util import PythonEvalType

from spark_bull.spark.platform.datasource import PASSES_START

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
        "it shows the offset of the newest batch, as the text of a Python dict instead of JSON",
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
