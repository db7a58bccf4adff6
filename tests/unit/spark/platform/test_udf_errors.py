"""Errors of UDFs: text that cannot be encoded as UTF-8 is replaced, since Spark cannot send it."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator

import pytest

from spark_bull.errors import RateLimitError, UnrecoverableError, control_error
from spark_bull.spark.platform.udf_errors import raising_sendable


def caused() -> Exception:
    error = ValueError("the message")
    error.__cause__ = RuntimeError("half \ud83d a sign")
    return error


@pytest.mark.parametrize(
    ("error", "last_line"),
    [
        (ValueError("half \ud83d a sign"), "ValueError: half \ufffd a sign"),
        (SystemExit("half \ud83d a sign"), "SystemExit: half \ufffd a sign"),
        (UnrecoverableError("half \ud83d a sign"), "spark_bull.errors.UnrecoverableError: half \ufffd a sign"),
        (caused(), "ValueError: the message"),
    ],
)
def test_invalid_unicode_in_an_error_is_replaced(error: BaseException, last_line: str) -> None:
    def function() -> None:
        raise error

    with pytest.raises(Exception) as raised:  # noqa: PT011
        raising_sendable(function)()
    trace = "".join(traceback.format_exception(raised.value)).rstrip()
    assert trace.encode().decode().splitlines()[-1] == last_line
    assert "raise error" in trace
    assert isinstance(control_error(trace), UnrecoverableError) == isinstance(error, UnrecoverableError)


@pytest.mark.parametrize("group", [False, True])
def test_a_rate_limit_is_the_same_in_the_trace_that_spark_passes_on(group: bool) -> None:
    found = control_error("".join(traceback.format_exception(RateLimitError(70, group=group))))
    assert isinstance(found, RateLimitError)
    assert (found.duration_ms, found.group) == (70, group)


def test_other_errors_and_values_are_unchanged() -> None:
    error = KeyboardInterrupt("plain")

    def function(n: int, of: str = "b") -> str:
        if n:
            raise error
        return of

    wrapped = raising_sendable(function)
    assert wrapped(0) == "b"
    assert inspect.getfullargspec(wrapped).args == ["n", "of"]
    with pytest.raises(KeyboardInterrupt) as raised:
        wrapped(1)
    assert raised.value is error
    assert raising_sendable(divmod)(7, 2) == (3, 1)


def test_invalid_unicode_in_an_error_of_an_iterator_is_replaced() -> None:
    def function(parts: Iterator[int]) -> Iterator[int]:
        for part in parts:
            if part == 2:
                raise ValueError("half \ud83d a sign")
            yield part

    made = raising_sendable(function)(iter([1, 2]))
    assert next(made) == 1
    with pytest.raises(Exception, match="half \ufffd a sign"):
        next(made)
