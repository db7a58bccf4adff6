"""Errors of this package in few lines: their messages say what to do, so their traces are left out.

Their causes stay, for programs and trackers of errors; of their traces, the frames of the user's code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from types import FunctionType, TracebackType
from typing import Any, TypeVar

from spark_bull.core.errors import ScriptError, SparkBullError

T = TypeVar("T")

log = logging.getLogger("spark_bull")


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
