"""What matters in the long messages of Spark's errors."""

from __future__ import annotations

from typing import Final

from spark_bull.runtime.error_text import reason_of

_NOT_PYTHON: Final = ("at ", "org.", "py4j", "pyspark.")
_TRACE: Final = "Traceback (most recent call last)"


def first_line(error: BaseException) -> str:
    """The line of an error that says most: the last one of a Python trace within it, else the first one."""
    lines = [line.strip() for line in reason_of(error).splitlines() if line.strip()]
    python = [line for line in lines if "Error: " in line and not line.startswith(_NOT_PYTHON)]
    return (python[-1] if python else lines[0] if lines else type(error).__name__)[:500]


def python_trace(error: BaseException) -> str | None:
    """The Python trace within an error's message, None when there is none."""
    text = reason_of(error)
    start = text.find(_TRACE)
    return text[start:].split("\n\tat ")[0].rstrip() if start >= 0 else None
