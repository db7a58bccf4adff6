"""Tests of JSON from fields of jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bull.errors import JobDamaged
from spark_bull.model.job_json import json_or_text, payload_of


@pytest.mark.parametrize("text", ["", "plain", "{", "NaN", "-Infinity", "1e999", '{"n": -1e999}', "[" * 100_000])
def test_a_text_that_is_no_json_or_has_no_finite_value_remains_a_text(text: str) -> None:
    assert json_or_text(text) == text


def test_no_text_is_none() -> None:
    assert json_or_text(None) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda values: st.lists(values) | st.dictionaries(st.text(), values),
    )
)
def test_json_is_parsed(value: Any) -> None:
    assert json_or_text(json.dumps(value)) == value


@pytest.mark.parametrize("text", ['{"a": [1, null]}', ' \n"text"\t', "1", "NaN", '{"a": "\ud83d\ude00"}'])
def test_payloads_are_parsed_as_by_python(text: str) -> None:
    assert repr(payload_of("1", text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "plain", "1,2", '{"a": 1}}', '{"a"', "\ufeff1", "[" * 100_000])
def test_a_payload_with_more_or_less_than_one_value_is_damaged(text: str) -> None:
    with pytest.raises(JobDamaged, match="expected `data` of job 1 to be JSON"):
        payload_of("1", text)
