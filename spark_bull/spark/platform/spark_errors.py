"""Extracts the relevant line, and the Python trace, from the long messages of Spark's errors."""

from __future__ import annotations

import re
from typing import Final

from spark_bull.core.error_text import message_of

#: Start of the last line of a Python trace: the class of the error.
_RAISED: Final = re.compile(r"(\w+\.)*[A-Z]((?![a-z])\w)*[a-z]\w*(: |$)")
_JVM: Final = ("at ", "org.", "java.", "scala.", "py4j")
#: First line of an error of the JVM, which names no cause.
_CALLED: Final = "An error occurred while calling "
_TRACE: Final = "Traceback (most recent call last)"


def first_line(error: BaseException) -> str:
    """Returns the most relevant line of an error: the last one of a Python trace in it, else the first one."""
    text = message_of(error)
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_CALLED)]
    raised = _raised(text)
    errors = [line for line in lines if "Error: " in line and not line.startswith((*_JVM, "pyspark."))]
    return [*raised[:1], *errors[-1:], *lines[:1], type(error).__name__][0][:500]


def reason_line(error: BaseException) -> str:
    """Returns the same without the class of an error of this package."""
    line = first_line(error)
    return line.partition(": ")[2] if line.startswith("spark_bull.core.errors.") else line


def _raised(text: str) -> list[str]:
    """Returns the lines after the last Python trace.

    If a source's process fails to create its reader, it also fails to stop it: that second error is skipped.
    """
    before, trace, after = text.rpartition(_TRACE)
    # The lines of a trace are indented. Spark appends lines of its own.
    raised = [line for line in after.splitlines() if _RAISED.match(line) and not line.startswith(_JVM)] if trace else []
    no_reader = raised and raised[0].startswith("UnboundLocalError: ") and "'reader'" in raised[0]
    return _raised(before) if no_reader else raised


def python_trace(error: BaseException) -> str | None:
    """Returns the Python trace in an error's message; None if there is none."""
    text = message_of(error)
    start = text.find(_TRACE)
    return text[start:].split("\n\tat ")[0].rstrip() if start >= 0 else None
