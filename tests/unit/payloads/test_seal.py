"""Sealed texts: round trips, and what does not open."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bull.payloads.seal import NotOpened, seal, unseal

KEY, OTHER, BOUND = b"k" * 32, b"o" * 32, b"spark_bull:data:bull:mail"
texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, texts | st.none())
def test_a_sealed_text_opens_again_and_is_a_json_object_without_it(text: str, source: str | None) -> None:
    sealed = seal(text, "a", KEY, BOUND, source)
    assert unseal(sealed, {"b": OTHER, "a": KEY}, BOUND) == text
    parts = json.loads(sealed)["$sealed"]
    assert (parts["v"], parts["kid"], [*parts]) == (1, "a", ["v", "kid", "iv", "ct"])
    # As JSON.stringify writes it.
    assert json.dumps(json.loads(sealed), separators=(",", ":")) == sealed


@given(texts, texts, texts)
def test_the_nonce_of_a_source_and_a_text_is_always_the_same_and_that_of_no_other(
    text: str, source: str, other: str
) -> None:
    sealed = seal(text, "a", KEY, BOUND, source)
    assert seal(text, "a", KEY, BOUND, source) == sealed
    nonces = {json.loads(one)["$sealed"]["iv"] for one in (sealed, seal(text, "a", OTHER, BOUND, source))}
    nonces |= {json.loads(seal(text, "a", KEY, BOUND + b"2", source))["$sealed"]["iv"]}
    nonces |= {json.loads(seal(text + "x", "a", KEY, BOUND, source))["$sealed"]["iv"]}
    nonces |= {json.loads(seal(text, "a", KEY, BOUND))["$sealed"]["iv"]}
    assert len(nonces) == 5
    assert (seal(text, "a", KEY, BOUND, other) == sealed) == (other == source)


def damaged(**parts: object) -> str:
    sealed = json.loads(seal("1", "a", KEY, BOUND, "job"))
    return json.dumps({"$sealed": {**sealed["$sealed"], **parts}})


@pytest.mark.parametrize(
    ("text", "keys", "why"),
    [
        (
            seal("1", "a", KEY, BOUND, "job"),
            {"a": OTHER},
            "open with key 'a', it does not: the key of this id is another one",
        ),
        (seal("1", "a", KEY, BOUND + b"2", "job"), {"a": KEY}, "it was sealed for another queue or field"),
        (seal("1", "a", KEY, BOUND, "job"), {"b": KEY, "c": OTHER}, "one of the keys b, c, got key 'a': add it"),
        (damaged(ct="AAAA"), {"a": KEY}, "the text is damaged"),
        (damaged(iv="AAAA"), {"a": KEY}, "the text is damaged"),
        (damaged(ct="?"), {"a": KEY}, "have `iv` and `ct` in base64, got something else: it is damaged"),
        (damaged(iv=7), {"a": KEY}, "have `iv` and `ct` in base64"),
        (damaged(kid=[]), {"a": KEY}, "got key []"),
        (damaged(v=2), {"a": KEY}, "have version 1, got 2: a newer spark_bull has written it"),
        (
            '{"$sealed":7}',
            {"a": KEY},
            "be an object `$sealed` with its version `v`, got: '{\"$sealed\":7}': it is damaged",
        ),
        ('{"$sealed":', {"a": KEY}, "it is damaged"),
    ],
)
def test_what_does_not_open_says_why_and_shows_no_key(text: str, keys: dict[str, bytes], why: str) -> None:
    with pytest.raises(NotOpened, match=re.escape(why)) as found:
        unseal(text, keys, BOUND)
    assert not any(key.decode() in str(found.value) for key in keys.values())
