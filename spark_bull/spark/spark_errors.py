"""What matters in the long messages of Spark's errors."""

from __future__ import annotations

import re
from typing import Final

from spark_bull.runtime.error_text import message_of

#: How the last line of a Python trace begins, whatever the class of the error is called.
_RAISED: Final = re.compile(r"(\w+\.)*[A-Z]\w*[a-z]\w*(: |$)")
_NOT_PYTHON: Final = ("at ", "org.", "java.", "scala.", "py4j", "pyspark.")
_TRACE: Final = "Traceback (most recent call last)"


def first_line(error: BaseException) -> str:
    """The line of an error that says most: the last one of a Python trace within it, else the first one."""
    text = message_of(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    _, trace, after = text.rpartition(_TRACE)
    raised = [line for line in after.splitlines() if _RAISED.match(line)] if trace else []
    python = [line for line in raised or lines if (raised or "Error: " in line) and not line.startswith(_NOT_PYTHON)]
    return (python[-1] if python else lines[0] if lines else type(error).__name__)[:500]


def python_trace(error: BaseException) -> str | None:
    """The Python trace within an error's message, None when there is none."""
    text = message_of(error)
    start = text.find(_TRACE)
    return text[start:].split("\n\tat ")[0].rstrip() if start >= 0 else None
