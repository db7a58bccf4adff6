"""The outcome of a job: errors, retries and the rules of each dialect, without Redis."""

from __future__ import annotations

import json
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bull.core.clock import LAST_ETA_MS
from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.dialects.terms import bull_exponential_ms, bullmq_exponential_ms, fixed_ms
from spark_bull.core.error_text import trace_of
from spark_bull.core.errors import (
    POSTPONING,
    DelayedError,
    JobCancelled,
    JobDamaged,
    JobTimeout,
    OptionError,
    RateLimitError,
    ReturnedError,
    UnrecoverableError,
    WaitingForChildren,
)
from spark_bull.core.model.jobs import RawJson
from spark_bull.core.model.outcomes import ClaimedJob, Delayed, Failed, Outcomes, Rested, Retried
from spark_bull.run.job.job_options import job_options, keep_of, keep_rule
from spark_bull.run.job.job_runner import JobExpired
from spark_bull.run.job.outcome_policy import NoReturnValue, attempts_after, returnvalue_text
from spark_bull.run.job.outcomes import Outcome, StatedOutcome, failure, outcome_of

BULLMQ, BULL, BULL_1 = DIALECTS["bullmq"], DIALECTS["bull"], DIALECTS["bull-1"]


def job(opts: dict[str, Any] | str = "{}", **fields: Any) -> ClaimedJob:
    given = {"timestamp": 1, "data": "{}", "name": None, "attempts_started": 1, "attempts_made": 0}
    return ClaimedJob(id="1", opts=opts if isinstance(opts, str) else json.dumps(opts), **given | fields)


def test_exponential_backoff_uses_the_formula_of_each_library() -> None:
    assert [bull_exponential_ms(1_000, made) for made in (1, 2, 3, 4)] == [1_000, 3_000, 7_000, 15_000]
    assert [bullmq_exponential_ms(1_000, made) for made in (1, 2, 3, 4)] == [1_000, 2_000, 4_000, 8_000]


@given(st.integers(0, 10**7), st.floats(0, 1), st.integers(1, 10))
def test_jitter_reduces_the_delay(delay: int, jitter: float, made: int) -> None:
    assert delay * (1 - jitter) - 1 <= fixed_ms(delay, jitter) <= delay
    whole = bullmq_exponential_ms(delay, made)
    assert whole * (1 - jitter) - 1 <= bullmq_exponential_ms(delay, made, jitter) <= whole


@pytest.mark.parametrize(
    ("dialect", "opts", "fields", "expected"),
    [
        (BULLMQ, {}, {}, "failed"),
        (BULLMQ, {"attempts": 2}, {}, 0),
        (BULLMQ, {"attempts": 2}, {"attempts_made": 1}, "failed"),
        (BULLMQ, {"attempts": 3, "backoff": 70}, {}, 70),
        (BULLMQ, {"attempts": 3, "backoff": {"type": "exponential", "delay": 10}}, {"attempts_made": 1}, 20),
        (BULL, {"attempts": 3, "backoff": {"type": "exponential", "delay": 10}}, {"attempts_made": 1}, 30),
        (BULL_1, {"attempts": 9}, {"attempts": 1}, "failed"),
        (BULL_1, {}, {"attempts": 2}, 0),
        (BULLMQ, {"attempts": 2.5}, {"attempts_made": 1}, 0),
        (BULLMQ, {"attempts": 2, "backoff": {"type": "fixed", "delay": -1}}, {}, "failed"),
        (BULLMQ, "{broken", {}, "failed"),
    ],
)
def test_a_failed_job_is_retried_up_to_its_attempts(
    dialect: Dialect, opts: Any, fields: dict[str, Any], expected: Any
) -> None:
    decided = failure(dialect, job(opts, **fields), ValueError("bad"), stack="trace")
    if expected == "failed":
        assert isinstance(decided, Failed)
    else:
        assert isinstance(decided, Retried)
        assert decided.delay == expected
    assert (decided.reason, json.loads(decided.stack)) == ("bad", ["trace"])


@pytest.mark.parametrize(
    ("backoff", "made", "delay", "kind"),
    [
        ({"type": "mine"}, 0, 1_000, "mine"),
        ({"type": "mine", "delay": "70"}, 1, 140, "mine"),
        (True, 2, 4_000, None),
        ("mine", 0, 1_000, None),
    ],
)
def test_an_unknown_backoff_type_without_a_strategy_waits_as_exponential(
    backoff: Any, made: int, delay: int, kind: str | None
) -> None:
    decided = failure(BULLMQ, job({"attempts": 9, "backoff": backoff}, attempts_made=made), ValueError("bad"))
    assert isinstance(decided, Retried)
    why = f"retried as `exponential`: expected `backoff_strategy` for the backoff type '{kind}', got none"
    assert (decided.delay, decided.reason) == (delay, f"bad ({why}; pass that function to the worker)")


def test_a_custom_strategy_decides_for_unknown_backoff_types() -> None:
    claimed = job({"attempts": 3, "backoff": {"type": "mine"}})
    assert failure(BULLMQ, claimed, ValueError("bad"), strategy=lambda *_: 5).delay == 5
    assert isinstance(failure(BULLMQ, claimed, ValueError("bad"), strategy=lambda *_: -1), Failed)


@pytest.mark.parametrize(
    ("dialect", "limit", "kept"),
    [
        (BULLMQ, 2, ["b", "c"]),
        (BULLMQ, 0, []),
        (BULL, 0, ["a", "b", "c"]),
        (BULL, 1, ["c"]),
        (BULL_1, 1, ["a", "b", "c"]),
        (BULLMQ, -1, ["b", "c"]),
    ],
)
def test_traces_are_kept_up_to_the_limit(dialect: Dialect, limit: Any, kept: list[str]) -> None:
    claimed = job({"stackTraceLimit": limit}, stacktrace='["a","b"]')
    assert json.loads(failure(dialect, claimed, "bad", stack="c").stack) == kept


@pytest.mark.parametrize(
    ("given_rule", "rule"),
    [
        (True, {"count": 0}),
        (False, None),
        (3, {"count": 3}),
        (-1, None),
        ({"age": 5}, {"age": 5}),
        ({"count": 2, "age": 1, "x": 3}, {"count": 2, "age": 1}),
        ({}, None),
        (None, None),
        ("false", {"count": 0}),
        (inf, {"count": 2**53}),
        (10**400, {"count": 2**53}),
        ({"count": "2", "age": "1", "limit": None}, {"count": 2, "age": 1}),
    ],
)
def test_retention_rules_are_normalised(given_rule: Any, rule: Any) -> None:
    assert keep_rule(given_rule) == rule


def test_the_retention_rule_of_the_job_overrides_that_of_the_worker() -> None:
    for opts in ("{}", '{"removeOnComplete":null}'):
        assert keep_of(BULLMQ, opts, "removeOnComplete", {"count": 7}) == {"count": 7}
    assert keep_of(BULLMQ, '{"removeOnComplete":false}', "removeOnComplete", {"count": 7}) is None
    assert keep_of(BULL_1, '{"removeOnComplete":3}', "removeOnComplete") == {"count": 0}
    assert keep_of(BULL_1, '{"removeOnFail":3}', "removeOnFail") is None


def test_return_values_are_json_of_which_bull_1_stores_no_falsy_one() -> None:
    given = (None, [1, "é"], RawJson('{"a" : 1}'))
    assert [returnvalue_text(BULLMQ, value) for value in given] == ["null", '[1,"é"]', '{"a" : 1}']
    assert [returnvalue_text(BULL_1, value) for value in (None, 0, False, "", 1)] == ["", "", "", "", "1"]


def test_a_return_value_that_is_not_json_is_an_error_and_a_coroutine_has_advice() -> None:
    async def process() -> int:
        return 1

    for value in ({1, 2}, object(), float("nan"), b"bytes"):
        with pytest.raises(NoReturnValue, match=type(value).__name__):
            returnvalue_text(BULLMQ, value)
    with pytest.raises(NoReturnValue, match="pass the coroutine function itself as the processor"):
        returnvalue_text(DIALECTS["bullmq"], process())


NOW = 1_000_000
#: An error, what becomes of its job, and the part of the outcomes that has the job.
POSTPONED = [
    (DelayedError(50), Outcome("delayed by", 50), {"delayed": [Delayed("1", NOW + 50)]}),
    (DelayedError(LAST_ETA_MS), Outcome("delayed by", LAST_ETA_MS), {"delayed": [Delayed("1", LAST_ETA_MS)]}),
    (DelayedError(until=70), Outcome("delayed until", 70), {"delayed": [Delayed("1", 70)]}),
    (RateLimitError(60, group=True), Outcome("rested", 60), {"rested": [Rested("1", 60)]}),
    (RateLimitError(60), Outcome("returned", 60), {"returned": ["1"], "limited_ms": 60}),
    (ReturnedError(), Outcome("returned"), {"returned": ["1"], "counted_returns": ["1"]}),
    (WaitingForChildren(), Outcome("waiting for children"), {"waiting_for_children": ["1"]}),
    (JobExpired(), Outcome("unstarted"), {"unstarted": ["1"]}),
]


def test_a_control_error_postpones_its_job() -> None:
    for error, ending, parts in POSTPONED:
        assert outcome_of(error) == ending
        outcomes = Outcomes("token")
        ending.postpone(outcomes, "1", NOW)
        assert outcomes == Outcomes("token", **parts)
    assert {type(error) for error, _, _ in POSTPONED} == {*POSTPONING, JobExpired}


def test_a_final_error_fails_its_job_for_good_and_any_other_one_the_attempt() -> None:
    for final in (UnrecoverableError("never"), JobCancelled(), JobDamaged("bad")):
        assert outcome_of(final) == Outcome("failed for good", error=final)
    for error in (ValueError("bad"), OptionError("bad"), KeyboardInterrupt()):
        assert outcome_of(error) == Outcome("failed", error=error)


@pytest.mark.parametrize(
    ("attribute", "invalid"), [("delay_ms", "soon"), ("delay_ms", -1), ("until", float("nan")), ("duration_ms", ...)]
)
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
        Outcome("returned", ms).postpone(outcomes, str(position), NOW)
    assert (outcomes.returned, outcomes.limited_ms) == (["0", "1", "2"], 30)
    assert not outcomes.counted_returns


class ServiceError(ConnectionError):
    pass


RULES = {"OSError": 7, "ConnectionError": 3, "ValueError": 0, "JobTimeout": 2}


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
    with pytest.raises(type(error)) as raised:
        raise error
    trace = trace_of(raised.value)
    assert attempts_after(RULES, StatedOutcome("failed", str(error), stack=f"Spark says:\n{trace}")) == attempts
    assert attempts_after({}, error) is None


def test_a_class_that_is_not_imported_is_known_by_its_name_only() -> None:
    trace = "Traceback (most recent call last):\n  File 'a.py', line 1\n    call()\n    ^^^^^^\n{}: away"
    for name in ("ServiceError", "services.ServiceError", "services.test.<locals>.ServiceError"):
        assert attempts_after({"ServiceError": 4}, StatedOutcome("failed", "", stack=trace.format(name))) == 4
        assert attempts_after({"ConnectionError": 4}, StatedOutcome("failed", "", stack=trace.format(name))) is None
    assert attempts_after({"ValueError": 4}, StatedOutcome("failed", "ValueError: of a column")) is None


def test_a_rule_overrides_the_attempts_of_the_job_unless_it_runs_at_most_once() -> None:
    once = '{"attempts":1,"delivery":"at-most-once"}'
    for opts, made, attempts, fails in (("{}", 0, 2, False), ('{"attempts":9}', 1, 2, True), (once, 0, 5, True)):
        job = ClaimedJob("1", opts=opts, attempts_made=made)
        decided = failure(DIALECTS["bullmq"], job, "bad", attempts=attempts)
        assert isinstance(decided, Failed) == fails, opts


@pytest.mark.parametrize(("opts", "rows"), [('{"kl": 3}', 3), ('{"keepLogs": 2}', 2), ("{}", 0)])
def test_the_options_of_a_job_limit_its_log(opts: str, rows: int) -> None:
    assert job_options(opts).log_limit == rows
