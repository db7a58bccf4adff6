"""Texts of exceptions: what a failed job stores, its reason and its stack trace; and short traces for errors of this
package.

The functions for jobs never raise: a message may be huge, may be invalid Unicode, or may raise an exception itself.

The message of an error of this package says what to do. So its traceback has only the frames of the user's code. Its
causes stay, for programs and trackers of errors.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, Final, TypeVar

from spark_bull.core.errors import ScriptError, SparkBullError
from spark_bull.core.well_formed import well_formed

log = logging.getLogger("spark_bull")


#: Maximum characters of a reason, and of a trace.
MAX_REASON: Final = 10_000
MAX_TRACE: Final = 20_000

_PACKAGE: Final = str(Path(__file__).parents[1])


def reason_of(error: BaseException) -> str:
    """Returns the exception's message, at most MAX_REASON characters.

    A message that is only the repr of the arguments, as `'to'` of KeyError("to"), is preceded by the name of the type;
    an empty message is replaced by it.
    """
    return _text_of(lambda: _reason(error), error, MAX_REASON)


def described(error: BaseException) -> str:
    """Returns the exception's type and message, at most MAX_REASON characters and the type."""
    kind, reason = type(error).__name__, reason_of(error)
    return reason if reason.startswith(kind) else f"{kind}: {reason}"


def message_of(error: BaseException) -> str:
    """Returns the same as `reason_of` without a length limit: Spark puts a Python trace between two long JVM traces."""
    return _text_of(lambda: _reason(error), error, sys.maxsize)


def trace_of(error: BaseException) -> str:
    """Returns the formatted trace, without the frames of this package that precede the processor's."""
    return _text_of(lambda: _trace(error), error, MAX_TRACE)


def sendable(text: str, limit: int = MAX_REASON) -> str:
    """Makes a text encodable as UTF-8, as `well_formed`. Beyond `limit` the middle is left out."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]} … ({len(text) - 2 * half:,} characters left out) … {text[-half:]}"
    return well_formed(text)


def _reason(error: BaseException) -> str:
    message, kind, given = str(error), type(error).__name__, error.args
    if not message.strip():
        return kind
    values = (repr(given[0]), repr(given)) if given else ()
    return f"{kind}: {message}" if message in values else message


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, _from_processor(error.__traceback__))).rstrip()


def _from_processor(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return trace


def _text_of(make: Callable[[], str], error: BaseException, limit: int) -> str:
    try:
        return sendable("".join(make()), limit)
    except BaseException:
        return f"{type(error).__name__} (the message is not available: reading it raises an exception)"


T = TypeVar("T")


def short_errors(kind: type[T]) -> type[T]:
    """Decorates a class whose methods users or Spark call: an error of this package leaves them with one frame of it.

    A ScriptError keeps its trace, as it may be a defect of the package. The others are logged with theirs at DEBUG.
    """
    for name, member in list(vars(kind).items()):
        if isinstance(member, FunctionType) and (not name.startswith("_") or name == "__init__"):
            setattr(kind, name, _short(member))
    return kind


def _short(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **given: Any) -> Any:
        try:
            result = method(*args, **given)
        except ScriptError:
            raise
        except SparkBullError as error:
            raise _without_trace(error) from error.__cause__
        return _short_items(result) if isinstance(result, Generator) else result

    return call


def _short_items(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except ScriptError:
        raise
    except SparkBullError as error:
        raise _without_trace(error) from error.__cause__


def _without_trace(error: SparkBullError) -> SparkBullError:
    log.debug("%s is raised", type(error).__name__, exc_info=error)
    seen, cause = {id(error)}, error.__cause__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        cause.__traceback__ = _of_the_user(cause.__traceback__)
        # What an error of redis-py, or of this package, has followed is no more to be printed than its trace.
        cause.__suppress_context__ = cause.__suppress_context__ or cause.__traceback__ is None
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return error.with_traceback(None)


def _of_the_user(trace: TracebackType | None) -> TracebackType | None:
    """A trace without the frames of this package, and those from redis-py on."""
    kept: list[TracebackType] = []
    while trace is not None and (package := _package_of(trace)) != "redis":
        if package != "spark_bull":
            kept.append(trace)
        trace = trace.tb_next
    shown = None
    for one in reversed(kept):
        shown = TracebackType(shown, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return shown


def _package_of(trace: TracebackType) -> str:
    return str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
