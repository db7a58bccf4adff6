"""The condition of a guard; JSON of the fields of jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_bull import Guard
from spark_bull.core.errors import JobDamaged, OptionError
from spark_bull.core.model.guards import Condition, parse_condition, pause_reason
from spark_bull.core.model.job_json import json_or_text, payload_of


@pytest.mark.parametrize(
    ("text", "condition", "interval_ms"),
    [
        ("failedRate > 0.2 over 1m", Condition("failedRate", ">", 0.2, 60_000, "failedRate > 0.2 over 1m"), 1_000),
        (" failed>=50  over 2h ", Condition("failed", ">=", 50, 7_200_000, "failed >= 50 over 2h"), 120_000),
        ("failedRate >= 1 over 1.5s", Condition("failedRate", ">=", 1, 1_500, "failedRate >= 1 over 1.5s"), 200),
    ],
)
def test_a_condition_has_a_measure_a_threshold_and_a_window(text: str, condition: Condition, interval_ms: int) -> None:
    assert parse_condition(text) == condition
    assert parse_condition(text).interval_ms == interval_ms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("often", "expected `pause_when` to be a condition such as 'failedRate > 0.2 over 1m' or"),
        (7, "to be a condition such as .*, got: 7"),
        ("waiting > 5 over 1m", "expected one of failedRate, failed in `pause_when`, got: waiting"),
        ("failedRate < 0.2 over 1m", "expected > or >= after `failedRate` in `pause_when`, got: <"),
        ("failedRate > 20 over 1m", "expected a number from 0 to 1 after `>` in `pause_when`, got: 20"),
        ("failed >= nan over 1m", "expected a number >= 0 after `>=` in `pause_when`, got: nan"),
        ("failed > 5", "expected `over` and a time from 1s to 1d, .* at the end in `pause_when`, got: nothing"),
        ("failed > 5 over 2d", "`over` and a time from 1s to 1d, .* got: 2d"),
    ],
)
def test_errors_say_what_was_expected(text: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Guard("mail", text)


def test_wrong_parameters_are_refused_by_name() -> None:
    wrong = {"queue": ("", None), "resume_after_s": (0, float("inf"), "5m"), "min_jobs": (0, True)}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(OptionError, match=f"expected `{name}`"):
                Guard(**{"queue": "mail", "pause_when": "failed > 5 over 1m", name: value})


def test_equal_guards_have_the_same_id_and_others_another_one() -> None:
    guards = [Guard("a", "failed > 5 over 1m"), Guard("b", "failed>5 over 1m"), Guard("a", "failed > 6 over 1m")]
    assert guards[0].id == guards[1].id != guards[2].id
    assert Guard("a", "failed > 5 over 1m", 10).id != guards[0].id


def test_the_sign_of_a_pause_says_who_has_paused() -> None:
    reason = pause_reason(b"spark-bull guard until 1700000000000: failed > 5 over 1m: 6 of 6 jobs failed")
    assert reason == "a guard until 2023-11-14 22:13:20Z: failed > 5 over 1m: 6 of 6 jobs failed"
    assert [pause_reason(mark) for mark in (None, b"1", b"", b"spark-bull guard until soon: x")] == [None] * 4
    assert pause_reason(b"spark-bull guard until " + b"9" * 5_000 + b": x") is None


def test_a_text_that_is_no_json_or_has_no_finite_value_remains_a_text() -> None:
    for text in ("", "plain", "{", "NaN", "-Infinity", "1e999", '{"n": -1e999}', "[" * 100_000, None):
        assert json_or_text(text) == text


def test_payloads_are_parsed_as_by_python_or_damaged() -> None:
    for text in ('{"a": [1, null]}', ' \n"text"\t', "1", "NaN", '{"a": "\ud83d\ude00"}'):
        assert repr(payload_of("1", text)) == repr(json.loads(text))
    for text in ("", "plain", "1,2", '{"a": 1}}', '{"a"', "\ufeff1", "[" * 100_000):
        with pytest.raises(JobDamaged, match="expected `data` of job 1 to be JSON"):
            payload_of("1", text)
