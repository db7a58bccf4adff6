"""What becomes of a job whose processor has raised an exception."""

from __future__ import annotations

import pytest

from spark_bull.clock import LAST_ETA_MS
from spark_bull.errors import (
    POSTPONING,
    DelayedError,
    JobCancelled,
    JobDamaged,
    OptionError,
    RateLimitError,
    ReturnedError,
    UnrecoverableError,
    WaitingForChildren,
)
from spark_bull.model.outcomes import Delayed, Outcomes, Rested
from spark_bull.worker.job.ending import Ending, outcome_of
from spark_bull.worker.job.job_runner import JobExpired

NOW = 1_000_000
#: An error, what becomes of its job, and the part of the outcomes that has the job.
POSTPONED = [
    (DelayedError(50), Ending("delayed by", 50), {"delayed": [Delayed("1", NOW + 50)]}),
    (DelayedError(LAST_ETA_MS), Ending("delayed by", LAST_ETA_MS), {"delayed": [Delayed("1", LAST_ETA_MS)]}),
    (DelayedError(until=70), Ending("delayed until", 70), {"delayed": [Delayed("1", 70)]}),
    (RateLimitError(60, group=True), Ending("rested", 60), {"rested": [Rested("1", 60)]}),
    (RateLimitError(60), Ending("returned", 60), {"returned": ["1"], "limited_ms": 60}),
    (ReturnedError(), Ending("returned"), {"returned": ["1"], "counted_returns": ["1"]}),
    (WaitingForChildren(), Ending("waiting for children"), {"waiting_for_children": ["1"]}),
    (JobExpired(), Ending("unstarted"), {"unstarted": ["1"]}),
]


@pytest.mark.parametrize(("error", "ending", "parts"), POSTPONED, ids=lambda value: repr(value))
def test_a_control_error_postpones_its_job(error: BaseException, ending: Ending, parts: dict[str, object]) -> None:
    assert outcome_of(error) == ending
    outcomes = Outcomes("token")
    ending.postpone(outcomes, "1", NOW)
    assert outcomes == Outcomes("token", **parts)  # type: ignore[arg-type]


def test_each_control_error_postpones_its_job() -> None:
    assert {type(error) for error, _, _ in POSTPONED} == {*POSTPONING, JobExpired}


@pytest.mark.parametrize("error", [UnrecoverableError("never"), JobCancelled(), JobDamaged("bad")], ids=repr)
def test_a_final_error_fails_its_job_for_good(error: BaseException) -> None:
    assert outcome_of(error) == Ending("failed for good", error=error)


@pytest.mark.parametrize("error", [ValueError("bad"), OptionError("bad"), KeyboardInterrupt()], ids=repr)
def test_any_other_error_fails_the_attempt(error: BaseException) -> None:
    assert outcome_of(error) == Ending("failed", error=error)


@pytest.mark.parametrize("attribute", ["delay_ms", "until", "duration_ms"])
@pytest.mark.parametrize("invalid", ["soon", -1, float("nan"), ...])
def test_a_control_error_with_an_invalid_attribute_fails_the_attempt(attribute: str, invalid: object) -> None:
    error = {"delay_ms": DelayedError(5), "until": DelayedError(until=5), "duration_ms": RateLimitError(5)}[attribute]
    if invalid is ...:
        delattr(error, attribute)
    else:
        setattr(error, attribute, invalid)
    ending = outcome_of(error)
    assert (ending.kind, ending.ms) == ("failed", 0)
    assert attribute in str(ending.error)


def test_the_longest_rate_limit_of_a_chunk_counts() -> None:
    outcomes = Outcomes("token")
    for position, ms in enumerate((10, 30, 20)):
        Ending("returned", ms).postpone(outcomes, str(position), NOW)
    assert (outcomes.returned, outcomes.limited_ms) == (["0", "1", "2"], 30)
    assert not outcomes.counted_returns
