"""Errors of a user's UDFs, in texts that Spark can send.

Spark's Python worker sends the trace of an error as UTF-8. With an unpaired surrogate in the text (half of a character
that was cut off, which JSON from Node may hold) it sends nothing and keeps its connection open, while Spark waits for
the trace: the task never ends. So UDFs that a transformation calls are wrapped, to raise what can be sent.
"""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, Final

from pyspark.sql.udf import UserDefinedFunction

from spark_bull.worker.error_text import sendable

_guard: Final = Lock()
#: What a UDF is for the JVM; None where a later pyspark has no such property, and UDFs are then left as they are.
_plain_judf: Final[Any] = vars(UserDefinedFunction).get("_judf")
_wrapped_judf: Final[Any] = property(lambda udf: _made(udf))
_users = 0


@contextmanager
def sendable_errors() -> Iterator[None]:
    """UDFs that are called on the driver in this block raise only what Spark can send, wherever they run later.

    It holds for all threads while any is in such a block: each UDF called then does the same as ever but for the texts.
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


def _made(udf: UserDefinedFunction) -> Any:
    """As pyspark makes it for a profiled function, and not kept: the UDF may have been called before, or be again."""
    return udf._create_judf(raising_sendable(udf.func))


def raising_sendable(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with errors that Spark can send; also those of an iterator that it returns."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            made = function(*args, **kwargs)
        except BaseException as error:
            if (instead := sendable_error(error)) is None:
                raise
            raise instead from None
        return _iterated(made) if isinstance(made, Iterator) else made

    with suppress(TypeError, ValueError):  # What is not written in Python may have none.
        # Spark looks at it to find out what the function takes.
        call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return call


def _iterated(made: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from made
    except BaseException as error:
        if (instead := sendable_error(error)) is None:
            raise
        raise instead from None


def sendable_error(error: BaseException) -> Exception | None:
    """What to raise instead of an error whose trace is no valid Unicode: one of the same name; None where it is."""
    try:
        "".join(traceback.format_exception(error)).encode()
    except UnicodeEncodeError:
        kind = type(error)
        named = type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
        instead: Exception = named(_text_of(error))
        return instead.with_traceback(error.__traceback__)
    return None


def _text_of(error: BaseException) -> str:
    """Its message; empty where asking for it raises, and only the text of another one, which led to it, is invalid."""
    try:
        return sendable(str(error), sys.maxsize)
    except BaseException:
        return ""
