"""Texts with halves of pairs of UTF-16, as JavaScript's toWellFormed makes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bull.well_formed import well_formed, well_formed_json

SIGNS = st.sampled_from(["\ud83c", "\udf89", "\U0001f389", "\\", "u", "d83c", '"', "a", "\n"])
TEXTS = st.lists(SIGNS, max_size=8).map("".join)
VALUES = st.recursive(
    TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=5
)


def each_text(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [each_text(one) for one in value]
    return {well_formed(name): each_text(one) for name, one in value.items()}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        ("é \U0001f389", "é \U0001f389"),
        ("a\ud83c", "a\ufffd"),
        ("\ud83ca", "\ufffda"),
        ("\udf89\ud83c", "\ufffd\ufffd"),
        ("\ud83c\ud83c\udf89", "\ufffd\U0001f389"),
    ],
)
def test_each_half_is_replaced(text: str, found: str) -> None:
    assert well_formed(text) == found


@given(VALUES)
def test_json_has_the_texts_that_its_values_have(value: Any) -> None:
    text = json.dumps(value)
    # Two halves that follow each other are a pair in JSON.
    assert json.loads(well_formed_json(text)) == each_text(json.loads(text))


def test_escapes_in_capitals_and_escaped_backslashes() -> None:
    assert well_formed_json(r'"\uD83C\uDf89 \UD83C \uD83C \\ud83c \\\uDF89"') == (
        r'"\uD83C\uDf89 \UD83C \ufffd \\ud83c \\\ufffd"'
    )
