"""Tests of JSON from fields of jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bull.job_json import json_or_text


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
