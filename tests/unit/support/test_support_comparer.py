"""What the comparisons with Node would pass silently: dumps that differ, and jobs without some options."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tests.support.dump import Dump, Key, Window, difference, normalise
from tests.support.jobs import BIG, random_jobs

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


def test_times_of_the_test_run_are_not_compared_and_those_given_by_the_test_are() -> None:
    assert differences(queue(NOW), queue(NOW + 50)) == []
    found = differences(queue(NOW - 10_000), queue(NOW - 20_000))
    assert [sentence.partition(":")[0] for sentence in found][:2] == ["1.opts.timestamp", "1.timestamp"]


@pytest.mark.parametrize(("given", "compared"), [(NOW - 10_000, True), (NOW, False)])
def test_the_order_within_a_given_millisecond_is_compared(given: int, compared: bool) -> None:
    one, other = (queue(given) | {"delayed": Key("zset", False, [("1", (given + 5000) * 4096.0 + n)])} for n in (7, 8))
    assert bool(differences(one, other)) == compared


def test_payloads_are_compared_byte_by_byte_and_options_by_meaning() -> None:
    assert differences(queue(NOW), queue(NOW, opts=f'{{"timestamp": {NOW},   "delay": 5000}}')) == []
    assert differences(queue(NOW), queue(NOW, data='{"a": 1}')) == [
        """1.data: '{"a":1}' left, '{"a": 1}' right (the same JSON, other bytes)"""
    ]
    assert difference({"a": True}, {"a": 1}) == ["a: True left, 1 right"]


@pytest.mark.parametrize("dialect", ["bull-1", "bull", "bullmq"])
def test_the_generated_jobs_cover_every_option(dialect: str) -> None:
    jobs = random_jobs(Random(1), dialect, 400)
    seen = {name for job in jobs for name in job["opts"]}
    assert seen >= {"delay", "timestamp", "lifo", "jobId", "attempts", "backoff", "removeOnComplete", "removeOnFail"}
    assert seen >= {"stackTraceLimit", "timeout", "tenant"}
    assert ("priority" in seen) == (dialect != "bull-1")
    ids = [job["opts"]["jobId"] for job in jobs if "jobId" in job["opts"]]
    assert len(set(ids)) < len(ids)
    assert max(len(json.dumps(job["data"])) for job in jobs) > BIG
    assert any(job["data"] in ({}, None, "") for job in jobs)
