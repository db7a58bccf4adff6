"""The maximum attempts of a job by the class of the error, which is raised or at the end of a trace."""

from __future__ import annotations

import json

import pytest

from spark_bull.dialects.registry import DIALECTS
from spark_bull.error_text import trace_of
from spark_bull.errors import JobTimeout, OptionError
from spark_bull.model.outcomes import ClaimedJob, Failed
from spark_bull.options.parse import parse_arguments
from spark_bull.options.table import WORK
from spark_bull.worker.job.ending import Stated
from spark_bull.worker.job.failure import failure
from spark_bull.worker.job.retry_rules import attempts_after


class ServiceError(ConnectionError):
    pass


RULES = {"OSError": 7, "ConnectionError": 3, "ValueError": 0, "JobTimeout": 2}


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as same:
        return same


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ServiceError("away"), 3),
        (FileNotFoundError("gone"), 7),
        (json.JSONDecodeError("bad", "{", 0), 0),
        (JobTimeout("late"), 2),
        (ValueError(), 0),
        (ValueError("several\nlines: of text"), 0),
        (KeyError("to"), None),
    ],
)
def test_the_nearest_class_of_an_error_or_of_its_trace_has_the_rule(error: Exception, attempts: int | None) -> None:
    assert attempts_after(RULES, error) == attempts
    trace = trace_of(raised(error))
    assert attempts_after(RULES, Stated("failed", str(error), stack=f"Spark says:\n{trace}")) == attempts
    assert attempts_after({}, error) is None


def test_a_class_that_is_not_imported_is_known_by_its_name_only() -> None:
    trace = "Traceback (most recent call last):\n  File 'a.py', line 1\n    call()\n    ^^^^^^\n{}: away"
    for name in ("ServiceError", "services.ServiceError", "services.test.<locals>.ServiceError"):
        assert attempts_after({"ServiceError": 4}, Stated("failed", "", stack=trace.format(name))) == 4
        assert attempts_after({"ConnectionError": 4}, Stated("failed", "", stack=trace.format(name))) is None
    assert attempts_after({"ValueError": 4}, Stated("failed", "ValueError: of a column")) is None


def test_a_rule_overrides_the_attempts_of_the_job_unless_it_runs_at_most_once() -> None:
    once = '{"attempts":1,"delivery":"at-most-once"}'
    for opts, made, attempts, fails in (("{}", 0, 2, False), ('{"attempts":9}', 1, 2, True), (once, 0, 5, True)):
        job = ClaimedJob("1", opts=opts, attempts_made=made)
        decided = failure(DIALECTS["bullmq"], job, "bad", attempts=attempts)
        assert isinstance(decided, Failed) == fails, opts


@pytest.mark.parametrize(
    "wrong", ["soon", "[]", {"TimeoutError": -1}, {"no name": 1}, {"A": True}, {"A": 1.5}, {"": 1}]
)
def test_wrong_rules_are_refused(wrong: object) -> None:
    with pytest.raises(OptionError, match="expected `retry` to be names of error classes with numbers of attempts"):
        parse_arguments({"retry": wrong}, WORK)
