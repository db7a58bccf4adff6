"""The line with the cause, out of the long messages of Spark's errors."""

from __future__ import annotations

import pytest

from spark_bull.spark.platform.spark_errors import first_line

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


@pytest.mark.parametrize(
    "raised",
    [
        "ModuleNotFoundError: No module named 'spark_bull'",
        "spark_bull.errors.ResultsLost: queue q: 3 jobs are gone",
        "my.module.Oops: too bad",
        "ValueError",
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket: timed out",
    ],
)
def test_the_first_line_is_the_error_of_the_python_process(raised: str) -> None:
    assert first_line(RuntimeError(TRACE.format(raised=raised))) == raised


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one line", "one line"),
        ("\n first\nAddress: second", "first"),
        (
            "Job aborted\norg.X: Error: no\nPython says: ValueError: no such thing",
            "Python says: ValueError: no such thing",
        ),
        ("", "RuntimeError"),
    ],
)
def test_without_a_trace_the_first_line_or_the_line_of_an_error_is_used(text: str, line: str) -> None:
    assert first_line(RuntimeError(text)) == line


def test_a_trace_between_very_long_texts_is_found() -> None:
    text = f"{'before ' * 5_000}\n{TRACE.format(raised='ValueError: too late')}\n{'after ' * 5_000}"
    assert first_line(RuntimeError(text)) == "ValueError: too late"


def test_the_original_error_is_used_when_spark_fails_while_handling_it() -> None:
    own = "UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value"
    again = f"During handling of the above exception, another exception occurred:\n\n{TRACE.format(raised=own)}"
    text = TRACE.format(raised="spark_bull.errors.OptionError: expected `a`").partition("Some text")[0] + again
    assert first_line(RuntimeError(text)) == "spark_bull.errors.OptionError: expected `a`"
