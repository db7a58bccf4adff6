"""Makes the errors of a user's UDFs encodable, so that Spark can transfer them.

Spark's Python worker sends the stack trace of an error as UTF-8. If the text contains an unpaired surrogate (half of a
truncated character, which JSON from Node may contain), encoding fails, the worker sends nothing and keeps its
connection open, and the task never ends. UDFs that a transformation calls are therefore wrapped.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final

from pyspark.sql.udf import UserDefinedFunction

from spark_bull.core.well_formed import well_formed

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
