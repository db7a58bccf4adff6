"""Kinds of UDFs."""

from __future__ import annotations

from typing import Final

from pyspark.util import PythonEvalType

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
