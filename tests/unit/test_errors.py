"""The class tree of errors and their messages."""

from __future__ import annotations

import inspect
import pickle
import traceback
from typing import Any

import pytest

from spark_bull import errors
from spark_bull.errors import (
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
    SparkBullError,
    UnrecoverableError,
    WaitingForChildren,
    control_error,
    did_you_mean,
    restated,
)

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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("JOBIDD", " (did you mean `jobId`?)"),
        ("prioritty", " (did you mean `priority`?)"),
        ("qqqqq", ""),
        ("", ""),
    ],
)
def test_the_nearest_name_is_suggested_if_there_is_one(name: str, hint: str) -> None:
    assert did_you_mean(name, ["jobId", "priority"]) == hint


@pytest.mark.parametrize(
    "error",
    [
        UnrecoverableError("never again"),
        JobDamaged("expected `data` of job 7 to be JSON"),
        DelayedError(50),
        DelayedError(until=2**40),
        RateLimitError(60),
        ReturnedError("for another worker"),
        WaitingForChildren(),
    ],
)
def test_a_control_error_is_parsed_from_a_trace(error: SparkBullError) -> None:
    try:
        raise error
    except SparkBullError:
        trace = f"An exception was thrown from the Python worker.\n{traceback.format_exc()}\n\tat org.apache.spark.X"
    again = control_error(trace)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    "trace", ["", "ValueError: spark_bull", "  spark_bull.errors.DelayedError: to run again in 5 ms"]
)
def test_other_traces_are_not_parsed_as_control_errors(trace: str) -> None:
    assert control_error(trace) is None
