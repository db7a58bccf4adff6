"""The line with the cause, out of the long messages of Spark; texts of errors that UTF-8 can encode."""

from __future__ import annotations

import inspect
import traceback

import pytest

from spark_bull.core.errors import UnrecoverableError, control_error
from spark_bull.spark.platform.spark_errors import first_line, raising_sendable

TRACE = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 262, in main
    data_source = read_command(pickleSer, infile)
                  ^^^^^^^^^^^^
{raised}

Some text. SQLSTATE: 38000
SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
Current Committed Offsets: {{}}
JVM stacktrace:
org.apache.spark.SparkException: wrapped
\tat org.apache.spark.Some.method(Some.scala:1)
Caused by: java.io.IOException: no
"""


def test_the_first_line_is_the_error_of_the_python_process() -> None:
    for raised in (
        "ModuleNotFoundError: No module named 'spark_bull'",
        "spark_bull.core.errors.ResultsLost: queue q: 3 jobs are gone",
        "my.module.Oops: too bad",
        "ValueError",
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket: timed out",
    ):
        text = TRACE.format(raised=raised)
        assert first_line(RuntimeError(text)) == raised
        # Between very long texts.
        assert first_line(RuntimeError(f"{'before ' * 5_000}\n{text}\n{'after ' * 5_000}")) == raised


def test_without_a_trace_the_first_line_or_the_line_of_an_error_is_used() -> None:
    said = "Python says: ValueError: no such thing"
    lines = {"one line": "one line", "\n first\nAddress: second": "first", "": "RuntimeError"}
    lines[f"Job aborted\norg.X: Error: no\n{said}"] = said
    assert {text: first_line(RuntimeError(text)) for text in lines} == lines


def test_the_original_error_is_used_when_spark_fails_while_handling_it() -> None:
    own = "UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value"
    again = f"During handling of the above exception, another exception occurred:\n\n{TRACE.format(raised=own)}"
    text = TRACE.format(raised="spark_bull.core.errors.OptionError: expected `a`").partition("Some text")[0] + again
    assert first_line(RuntimeError(text)) == "spark_bull.core.errors.OptionError: expected `a`"


def caused() -> Exception:
    error = ValueError("the message")
    error.__cause__ = RuntimeError("half \ud83d a sign")
    return error


@pytest.mark.parametrize(
    ("error", "last_line"),
    [
        (ValueError("half \ud83d a sign"), "ValueError: half \ufffd a sign"),
        (SystemExit("half \ud83d a sign"), "SystemExit: half \ufffd a sign"),
        (UnrecoverableError("half \ud83d a sign"), "spark_bull.core.errors.UnrecoverableError: half \ufffd a sign"),
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
