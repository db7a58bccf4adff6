"""Errors between Python and the JVM: the relevant line of long messages, and UDF errors that can be sent."""

from __future__ import annotations

import functools
import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final

from pyspark.sql.udf import UserDefinedFunction

from spark_bull.core.error_text import message_of
from spark_bull.core.well_formed import well_formed

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


_guard: Final = Lock()
#: The property with a UDF's JVM object; None if a later PySpark has no such property. UDFs are then not wrapped.
_plain_judf: Final[Any] = vars(UserDefinedFunction).get("_judf")
_wrapped_judf: Final[Any] = property(lambda udf: _wrapped(udf))
_users = 0


@contextmanager
def sendable_errors() -> Iterator[None]:
    """Wraps UDFs that are called on the driver in this block, so that their errors can be sent by Spark.

    Affects all threads while one of them is in such a block: only the texts of errors change.
    """
    _use(1)
    try:
        yield
    finally:
        _use(-1)


def _use(more: int) -> None:
    global _users
    with _guard:
        _users += more
        if _plain_judf is not None:
            UserDefinedFunction._judf = _wrapped_judf if _users else _plain_judf  # type: ignore[method-assign]


def _wrapped(udf: UserDefinedFunction) -> Any:
    """Creates a JVM object, not cached as for profiling: the UDF may be called outside the block, too."""
    return udf._create_judf(raising_sendable(udf.func))


def raising_sendable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function so that Spark can send its errors, and the errors of an iterator it returns."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if (replacement := sendable_error(error)) is None:
                raise
            raise replacement from None
        return _raising_sendable_iterator(result) if isinstance(result, Iterator) else result

    with suppress(TypeError, ValueError):  # Built-in functions may have no signature.
        # Spark inspects the signature to find the kind of the UDF.
        call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return call


def _raising_sendable_iterator(result: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from result
    except BaseException as error:
        if (replacement := sendable_error(error)) is None:
            raise
        raise replacement from None


def sendable_error(error: BaseException) -> Exception | None:
    """Returns an error of the same name to raise if the trace of `error` is invalid Unicode; None if it is valid."""
    try:
        "".join(traceback.format_exception(error)).encode()
    except UnicodeEncodeError:
        kind = type(error)
        named = type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
        replacement: Exception = named(_text_of(error))
        return replacement.with_traceback(error.__traceback__)
    return None


def _text_of(error: BaseException) -> str:
    """Returns the message of an error; empty if reading it raises."""
    try:
        return well_formed(str(error))
    except BaseException:
        return ""
