"""Which differences between two dumps are reported."""

from __future__ import annotations

from typing import Any

from tests.support.dump import Dump, Key, Window, difference, normalise, normalise_messages

NOW = 1_800_000_000_000


def queue(now: int, **job: Any) -> Dump:
    """A queue with one delayed job that was added at the given time."""
    fields = {"data": '{"a":1}', "opts": f'{{"delay":5000,"timestamp":{now}}}', "timestamp": str(now), "delay": "5000"}
    return {
        "1": Key("hash", False, fields | job),
        "delayed": Key("zset", False, [("1", (now + 5000) * 4096.0 + 7)]),
        "marker": Key("zset", False, [("1", float(now + 5000))]),
        "events": Key("stream", False, [(f"{now}-0", {"event": "delayed", "jobId": "1", "delay": str(now + 5000)})]),
        "1:lock": Key("string", True, f"token-{now}"),
        "spark:receipt:x": Key("hash", True, {}),
    }


def differences(left: Dump, right: Dump) -> list[str]:
    window = Window(NOW - 100, NOW + 100)
    return difference(normalise(left, window), normalise(right, window))


def test_times_of_the_test_run_are_not_compared() -> None:
    assert differences(queue(NOW), queue(NOW + 50)) == []


def test_times_given_by_the_test_are_compared() -> None:
    found = differences(queue(NOW - 10_000), queue(NOW - 20_000))
    assert [sentence.partition(":")[0] for sentence in found][:2] == ["1.opts.timestamp", "1.timestamp"]


def test_the_order_within_a_millisecond_is_compared() -> None:
    def numbered(now: int, number: int) -> Dump:
        return queue(now) | {"delayed": Key("zset", False, [("1", (now + 5000) * 4096.0 + number)])}

    given = NOW - 10_000
    (sentence,) = differences(numbered(given, 7), numbered(given, 8))
    assert sentence.startswith("delayed[0]: ")
    assert differences(numbered(NOW, 7), numbered(NOW, 8)) == []


def test_payloads_are_compared_byte_by_byte_and_options_by_meaning() -> None:
    opts = f'{{"timestamp": {NOW},   "delay": 5000}}'
    assert differences(queue(NOW), queue(NOW, opts=opts)) == []
    assert differences(queue(NOW), queue(NOW, data='{"a": 1}')) == [
        """1.data: '{"a":1}' left, '{"a": 1}' right (the same JSON, other bytes)"""
    ]


def test_true_differs_from_1() -> None:
    assert difference({"a": True}, {"a": 1}) == ["a: True left, 1 right"]


def test_one_more_item_is_one_difference() -> None:
    assert difference({"wait": list("abcd")}, {"wait": list("abd")}) == [
        "wait: 4 items left, 3 right",
        "wait[2]: only left has 'c'",
    ]


def test_types_and_expiry_are_compared() -> None:
    assert difference({"k": Key("set", False, [])}, {"k": Key("zset", True, [])}) == [
        "k: only left has (set) []",
        "k: only right has (zset, expires) []",
    ]


def test_known_differences_are_ignored() -> None:
    assert difference({"meta": {"version": "6"}}, {"meta": {}}, known={"meta.version"}) == []


def test_tokens_and_times_in_messages_are_normalised() -> None:
    def normal(now: int, token: str) -> list[tuple[str, Any]]:
        said = [
            (f"p:q:waiting@{token}", "1"),
            ("p:q:delayed", str(now + 5000)),
            ("p:q:delayed", f"{now + 5000}.0005"),
            ("waiting@q", f'["{token}", {{"timestamp": {now}, "opts": {{"jobId": "1"}}}}]'),
        ]
        return normalise_messages(said, "p", queue(now), Window(NOW - 100, NOW + 100))

    one, other = (
        normal(NOW, "9b2f0c5e-0000-4000-8000-000000000001"),
        normal(NOW + 9, "9b2f0c5e-0000-4000-8000-0000000000ff"),
    )
    assert one == other
    assert one[2] == ("delayed", "<now + 5000>+2")
    assert one[3] == ("waiting@<queue>", ["<token>", {"timestamp": "<now>", "opts": {"jobId": "1"}}])
