"""The class tree of errors, their messages, and the frames with which they leave public methods."""

from __future__ import annotations

import inspect
import logging
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import spark_bull
from spark_bull import BullQueue
from spark_bull.core import errors
from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import (
    ConnectionLost,
    DelayedError,
    IntakeClosed,
    JobDamaged,
    JobError,
    JobFailed,
    NotReplicated,
    OptionError,
    QueueBusy,
    QueueFull,
    RateLimitError,
    ReturnedError,
    ScriptError,
    SparkBullError,
    UnrecoverableError,
    WaitingForChildren,
    control_error,
    did_you_mean,
    restated,
)
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.store.errors import translated

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]


def test_every_error_is_in_the_class_tree_and_its_documentation() -> None:
    for kind in CLASSES:
        assert issubclass(kind, SparkBullError), kind
        assert kind.__doc__, kind
        assert kind.__name__ in (errors.__doc__ or "")
    assert issubclass(OptionError, ValueError)
    assert issubclass(ConnectionLost, ConnectionError)


def attributes_of(kind: type[SparkBullError]) -> dict[str, Any]:
    """Arguments of an error beside its message."""
    if issubclass(kind, JobError):
        reason = {"reason": "no address"} if kind is JobFailed else {}
        return {"queue": "mail", "job_id": "7"} | reason
    more = {
        QueueBusy: {"active": 3},
        QueueFull: {"length": 5, "max_length": 5},
        IntakeClosed: {},
        NotReplicated: {"replicas": 1},
    }
    return {"queue": "mail", **more[kind]} if kind in more else {}


def test_a_restated_or_pickled_error_keeps_its_class_and_attributes() -> None:
    """Spark's executors send theirs to the driver."""
    for kind in CLASSES:
        error = kind(5 if issubclass(kind, (DelayedError, RateLimitError)) else "what happened", **attributes_of(kind))
        text = f"in a task: {error}"
        for again, said in ((restated(error, text), text), (pickle.loads(pickle.dumps(error)), str(error))):
            assert (type(again), str(again), vars(again)) == (kind, said, vars(error))


def test_the_nearest_name_is_suggested_if_there_is_one() -> None:
    hints = {"JOBIDD": " (did you mean `jobId`?)", "prioritty": " (did you mean `priority`?)", "qqqqq": "", "": ""}
    assert {name: did_you_mean(name, ["jobId", "priority"]) for name in hints} == hints


def test_a_control_error_is_parsed_from_a_trace() -> None:
    damaged = JobDamaged("expected `data` of job 7 to be JSON")
    delays, never = (DelayedError(50), DelayedError(until=2**40)), UnrecoverableError("never again")
    limits = (RateLimitError(60), RateLimitError(70, group=True))
    for error in (never, damaged, *delays, *limits, ReturnedError("for another worker"), WaitingForChildren()):
        text = "".join(traceback.format_exception(error))
        again = control_error(f"An exception was thrown from the Python worker.\n{text}\n\tat org.apache.spark.X")
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    for trace in ("", "ValueError: spark_bull", "  spark_bull.core.errors.DelayedError: to run again in 5 ms"):
        assert control_error(trace) is None


PACKAGE = str(Path(spark_bull.__file__).parent)


@short_errors
class Raising:
    def refuse(self, error: Exception) -> None:
        try:
            raise ValueError("the cause")
        except ValueError as cause:
            raise error from cause

    def items(self, error: Exception) -> Iterator[int]:
        yield 1
        self.refuse(error)


def printed(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


def test_an_error_has_one_frame_of_the_package(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "spark_bull")
    with pytest.raises(OptionError) as raised:
        BullQueue("q", url="redis://127.0.0.1:1", retry_ms="soon")
    lines = printed(raised.value)
    assert sum(PACKAGE in line for line in lines) == 1
    assert lines[-1].startswith("spark_bull.core.errors.OptionError: expected `retry_ms`")
    logged = [line for record in caplog.records if record.exc_info for line in traceback.format_tb(record.exc_info[2])]
    assert any("in __init__" in line for line in logged), "the whole trace is logged at DEBUG"


def test_an_unreachable_redis_is_an_error_whose_cause_is_that_of_redis_py_without_its_trace() -> None:
    with pytest.raises(spark_bull.ConnectionLost) as raised:
        BullQueue("q", url="redis://127.0.0.1:1", retry_ms=0)
    lines = printed(raised.value)
    assert sum(PACKAGE in line for line in lines) == 1
    assert isinstance(raised.value.__cause__, redis.ConnectionError)
    assert isinstance(raised.value.__cause__.__context__, ConnectionRefusedError)
    assert sum(line.startswith("Traceback") for line in lines) == 1
    assert lines[0].startswith("redis.exceptions.ConnectionError: Error 111 connecting to 127.0.0.1:1")
    assert lines[-1].startswith(
        "spark_bull.core.errors.RedisUnavailable: expected Redis at redis://127.0.0.1:1, got none: "
    )


def test_errors_while_items_are_read_are_short_too() -> None:
    items = Raising().items(OptionError("no"))
    assert next(items) == 1
    with pytest.raises(OptionError) as raised:
        next(items)
    lines = printed(raised.value)
    assert isinstance(raised.value.__cause__, ValueError)
    assert [line.strip() for line in lines if "the cause" in line] == [
        'raise ValueError("the cause")',
        "ValueError: the cause",
    ], "the frame of the user's code"
    assert "in items" not in "".join(lines)


@pytest.mark.parametrize("error", [ScriptError("a defect"), KeyError("another")])
def test_other_errors_keep_their_trace_and_cause(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        Raising().refuse(error)
    assert isinstance(raised.value.__cause__, ValueError)
    assert "in refuse" in "".join(printed(raised.value))


def test_the_cause_of_a_refused_command_does_not_tell_its_arguments() -> None:
    cause = redis.ResponseError("unknown command 'AUTH', with args beginning with: 's3cret' ")
    ours = translated(cause, parse_options({"url": "redis://localhost", "queue": "q"}, ReadOptions).redis, "a command")
    assert "the command AUTH, which is disabled or renamed" in str(ours)
    assert str(cause) == "unknown command 'AUTH'"
