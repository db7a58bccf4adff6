"""Redis keys, private ones too, and texts with halves of pairs of UTF-16."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from spark_bull.core.keys import QUEUE_SIGNS, SEGMENTS, QueueKeys, hash_tag, literal_glob, queue_of
from spark_bull.core.well_formed import well_formed, well_formed_json

KEYS = QueueKeys("mail", "bull")


def test_a_name_gives_the_key_of_the_node_libraries() -> None:
    names = {"base": "", "wait": "wait", "waiting_children": "waiting-children", "meta_paused": "meta-paused"}
    names |= {"stalled_check": "stalled-check", "metrics_completed": "metrics:completed"}
    assert {name: KEYS[name] for name in names} == {name: f"bull:mail:{key}" for name, key in names.items()}
    assert (KEYS.job("7"), KEYS.logs("7"), KEYS.lock("7")) == ("bull:mail:7", "bull:mail:7:logs", "bull:mail:7:lock")
    with pytest.raises(KeyError):
        KEYS["nonsense"]


def test_no_two_names_give_the_same_key_and_own_keys_have_several_segments_after_the_queue() -> None:
    """BullMQ's removeOrphanedJobs deletes unknown keys of a single segment."""
    own = [KEYS.stage("a"), KEYS.write("a"), KEYS.manifest("a"), KEYS.watermark("a"), KEYS.receipt("a")]
    assert all(key.startswith("bull:mail:spark:") for key in own)
    assert len(set(own)) == len(own)
    assert len(set(SEGMENTS.values())) == len(SEGMENTS)


@given(
    prefix=st.text(st.characters(exclude_characters=":"), min_size=1),
    queue=st.text(min_size=1),
    sign=st.sampled_from(sorted(QUEUE_SIGNS)),
)
@example("bull", "spark:", "wait")
def test_the_queue_name_is_parsed_from_its_keys(prefix: str, queue: str, sign: str) -> None:
    assume(":spark:" not in queue)
    assert queue_of(f"{prefix}:{queue}:{sign}", prefix) == queue


def test_patterns_have_the_characters_of_names_as_they_are() -> None:
    assert literal_glob(r"a*?[b]\c") == r"a\*\?\[b\]\\c"


def test_other_keys_belong_to_no_queue() -> None:
    others = ("bull:mail:7", "other:mail:id", "bull:id", "id", "", "bull::id", "bullet:mail:id")
    assert {queue_of(key, "bull") for key in (*others, "bull:mail:spark:claims:wait")} == {None}


@pytest.mark.parametrize(
    ("prefix", "queue", "tagged"),
    [
        ("bull", "mail", False),
        ("{bull}", "mail", True),
        ("bull", "{mail}", True),
        ("bull", "{}mail", False),
        ("{}", "{mail}", False),  # Redis looks at the first brace only
        ("bull", "{mail", False),
        ("bull", "}mail{", False),
        ("a{b", "c}d", True),
    ],
)
def test_hash_tags_are_recognised_as_by_redis_cluster(prefix: str, queue: str, tagged: bool) -> None:
    assert bool(hash_tag(prefix, queue)) is tagged


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


def test_each_half_is_replaced() -> None:
    halves = {"": "", "é \U0001f389": "é \U0001f389", "a\ud83c": "a\ufffd", "\ud83ca": "\ufffda"}
    halves |= {"\udf89\ud83c": "\ufffd\ufffd", "\ud83c\ud83c\udf89": "\ufffd\U0001f389"}
    assert {text: well_formed(text) for text in halves} == halves


@given(VALUES)
def test_json_has_the_texts_that_its_values_have(value: Any) -> None:
    text = json.dumps(value)
    # Two halves that follow each other are a pair in JSON.
    assert json.loads(well_formed_json(text)) == each_text(json.loads(text))


def test_escapes_in_capitals_and_escaped_backslashes() -> None:
    assert well_formed_json(r'"\uD83C\uDf89 \UD83C \uD83C \\ud83c \\\uDF89"') == (
        r'"\uD83C\uDf89 \UD83C \ufffd \\ud83c \\\ufffd"'
    )
