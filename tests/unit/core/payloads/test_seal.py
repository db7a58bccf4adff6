"""Where keys are, what is wrong with them, and the texts that do not open."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bull.core.errors import OptionError
from spark_bull.core.options.values import KeySource, key_sources
from spark_bull.core.payloads.seal import NotOpened, key_of, seal, unseal

KEY, OTHER, BOUND = b"k" * 32, b"o" * 32, b"spark_bull:data:bull:mail"
texts = st.text(st.characters(exclude_categories=["Cs"]))


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
        (damaged(ct="?"), {"a": KEY}, "have `iv` and `ct` in base64, got something else: it is damaged"),
        (damaged(kid=[]), {"a": KEY}, "got key []"),
        (damaged(v=2), {"a": KEY}, "have version 1, got 2: a newer spark_bull has written it"),
        (
            '{"$sealed":7}',
            {"a": KEY},
            "be an object `$sealed` with its version `v`, got: '{\"$sealed\":7}': it is damaged",
        ),
    ],
)
def test_what_does_not_open_says_why_and_shows_no_key(text: str, keys: dict[str, bytes], why: str) -> None:
    with pytest.raises(NotOpened, match=re.escape(why)) as found:
        unseal(text, keys, BOUND)
    assert not any(key.decode() in str(found.value) for key in keys.values())


RAW = bytes(range(32))


def test_keys_are_listed_with_commas_spaces_or_as_json() -> None:
    expected = (KeySource("b", "file", "/run/secrets/mail"), KeySource("a", "env", "MAIL_SECRET"))
    for text in (
        "b=file:/run/secrets/mail,a=env:MAIL_SECRET",
        " b=file:/run/secrets/mail, a=env:MAIL_SECRET",
        '["b=file:/run/secrets/mail", "a=env:MAIL_SECRET"]',
    ):
        assert key_sources("encryptWith", text) == expected


def test_a_key_in_the_place_of_its_source_is_refused_without_showing_it() -> None:
    for text in (base64.b64encode(RAW).decode(), "a=" + RAW.hex(), "env:OWN_KEY", "a=file:"):
        with pytest.raises(
            OptionError, match="got something else, which is not shown; a key itself is no option"
        ) as found:
            key_sources("encryptWith", text)
        assert text not in str(found.value)
    for text, got in (("", "none"), ("[]", "none"), ("a=env:X,a=env:Y", "a, a")):
        with pytest.raises(OptionError, match=f"expected `encryptWith` to list keys with different ids, got: {got}"):
            key_sources("encryptWith", text)


def test_a_file_holds_a_key_as_bytes_in_hex_or_in_base64_and_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "key"
    contents = (RAW, RAW.hex().encode(), base64.b64encode(RAW), base64.b64encode(RAW[::-1]) + b"\n")
    for second, content in enumerate(contents):
        path.write_bytes(content)
        os.utime(path, (second, second))
        assert key_of(KeySource("a", "file", str(path))) == (RAW if second < 3 else RAW[::-1])


def test_an_environment_variable_holds_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    source = KeySource("a", "env", "SPARK_BULL_TEST_KEY")
    with pytest.raises(
        OptionError, match=r"key 'a' in the environment variable \w+: .* no such variable.*or give them a file.*SECRET"
    ):
        key_of(source)
    for key in (RAW, RAW[::-1]):
        monkeypatch.setenv(source.where, key.hex())
        assert key_of(source) == key


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (base64.b64encode(RAW[:16]), "got 16 bytes"),
        (b"secret word", "got 11 characters of something else"),
        (b"", "got 0 bytes"),
    ],
)
def test_a_file_of_another_length_is_refused_without_showing_it(content: bytes, got: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=f"key 'a' in the file {path}: expected 32 bytes.*{got}") as found:
        key_of(KeySource("a", "file", str(path)))
    assert not content or content.decode() not in str(found.value)
    with pytest.raises(OptionError, match="got no readable file: No such file or directory"):
        key_of(KeySource("a", "file", f"{path}2"))
