"""Errors of this package in few lines: their messages say what to do, so their traces and causes are left out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from spark_bull.errors import ScriptError, SparkBullError

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
            raise _without_trace(error) from None
        return _short_items(result) if isinstance(result, Generator) else result

    return call


def _short_items(items: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from items
    except ScriptError:
        raise
    except SparkBullError as error:
        raise _without_trace(error) from None


def _without_trace(error: SparkBullError) -> SparkBullError:
    log.debug("%s is raised", type(error).__name__, exc_info=error)
    return error.with_traceback(None)
