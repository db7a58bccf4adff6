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
    JobMissing,
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
    expected,
    restated,
)

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_in_the_class_tree_and_its_documentation(kind: type[Exception]) -> None:
    assert issubclass(kind, SparkBullError)
    assert kind.__doc__
    assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(("kind", "builtin"), [(OptionError, ValueError), (ConnectionLost, ConnectionError)])
def test_errors_can_be_caught_as_the_builtin_of_their_kind(kind: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(kind, builtin)


def test_a_job_error_names_queue_and_job() -> None:
    error = JobMissing("gone", queue="mail", job_id="7")
    assert isinstance(error, JobError)
    assert (error.queue, error.job_id, str(error)) == ("mail", "7", "gone")


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


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_restated_error_keeps_its_class_and_attributes(kind: type[SparkBullError]) -> None:
    error = kind(5 if issubclass(kind, (DelayedError, RateLimitError)) else "what happened", **attributes_of(kind))
    copied = restated(error, f"in a task: {error}")
    assert type(copied) is type(error)
    assert (str(copied), vars(copied)) == (f"in a task: {error}", vars(error))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_errors_can_be_pickled(kind: type[SparkBullError]) -> None:
    """Spark's executors send theirs to the driver."""
    error = kind(5 if issubclass(kind, (DelayedError, RateLimitError)) else "what happened", **attributes_of(kind))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_an_error_about_an_option_names_the_expected_and_the_actual_value() -> None:
    assert str(expected("port", "a number", "x")) == "expected `port` to be a number, got: 'x'"


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
