"""Follow-ups, tasks of coroutine functions, and bisection, without Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import DialectError, OptionError, SparkBullError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.outcomes import MAX_FOLLOW_UPS, ClaimedJob
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import QueueOptions
from spark_bull.core.queue.dispatch.flows import MAX_SIZE
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.store.connection import Connection
from spark_bull.run.job.job_runner import run_bisected
from spark_bull.run.job.running_job import RunningJob


def running(protocol: str = "bullmq", queue: str = "q", prefix: str = "bull") -> RunningJob:
    """A job of a queue in a Redis that does not exist."""
    settings = parse_arguments({"url": "redis://localhost:1", "retry_ms": 0}, QueueOptions).redis
    handle = QueueHandle(Connection(settings), QueueKeys(queue, prefix), DIALECTS[protocol])
    return RunningJob(ClaimedJob("7"), handle)


@pytest.mark.parametrize(
    ("job", "more", "message"),
    [
        ({"to": "ada"}, {}, "expected `job` to be a NewJob"),
        (NewJob({}), {"on": "always"}, "expected `on` to be success or failure, got: 'always'"),
        (NewJob({}), {"queue": ""}, "expected `queue` to be the name of a queue, got an empty one"),
        (NewJob({}), {"queue": "a:b"}, "expected `queue` without ':'"),
        (NewJob({}, job_id="12"), {}, "expected `jobId` not to be an integer"),
        (NewJob({}, job_id="\ud800"), {}, "UTF-8"),
        (NewJob("x" * (MAX_SIZE + 1)), {}, "at most 4,194,304 characters, got 4,19.*store large payloads elsewhere"),
    ],
)
def test_an_invalid_follow_up_is_refused_and_forgotten(job: Any, more: dict[str, Any], message: str) -> None:
    running_job = running()
    with pytest.raises(OptionError, match=message):
        running_job.then(job, **more)
    assert running_job.follow_ups == ()
    with pytest.raises(DialectError, match="bull-1"):
        running("bull-1").then(NewJob({}, priority=1))


def test_a_job_has_a_limited_number_of_follow_ups() -> None:
    job = running()
    for n in range(MAX_FOLLOW_UPS):
        job.then(NewJob(n))
    with pytest.raises(OptionError, match=f"at most {MAX_FOLLOW_UPS} follow-ups of a job, got {MAX_FOLLOW_UPS + 1}"):
        job.then(NewJob({}))
    assert len(job.follow_ups) == MAX_FOLLOW_UPS


@pytest.mark.parametrize(
    ("prefix", "queue", "other", "refused"),
    [
        ("bull", "{a}mail", "{b}sms", True),
        ("bull", "{a}mail", "sms", True),
        ("bull", "{a}mail", "{a}sms", False),
        ("{bull}", "mail", "{b}sms", False),
        ("bull", "mail", "sms", False),
    ],
)
def test_a_queue_of_another_slot_of_a_cluster_is_refused(prefix: str, queue: str, other: str, refused: bool) -> None:
    with pytest.raises(SparkBullError) as raised:
        running(queue=queue, prefix=prefix).then(NewJob({}), queue=other)
    # A queue that can be used is looked at in Redis, which cannot be reached here.
    assert isinstance(raised.value, OptionError) is refused
    assert ("hash tag {a}" in str(raised.value)) is refused


@given(st.integers(0, 300), st.sets(st.integers(0, 299), max_size=6))
def test_only_bad_items_fail_each_with_its_own_error(count: int, bad: set[int]) -> None:
    calls = 0

    def run(items: Sequence[int]) -> Sequence[int]:
        nonlocal calls
        calls += 1
        for item in items:
            if item in bad:
                raise ValueError(f"bad {item}")
        return [10 * item for item in items]

    parts = list(run_bisected(range(count), run))
    assert all(items for items, _ in parts)
    assert [n for items, _ in parts for n in items] == list(range(count))
    there = {n for n in bad if n < count}
    failed = [(list(items), str(error)) for items, error in parts if isinstance(error, Exception)]
    assert failed == [([n], f"bad {n}") for n in sorted(there)]
    assert all(outputs == [10 * n for n in items] for items, outputs in parts if not isinstance(outputs, Exception))
    assert calls <= 1 + 2 * len(there) * 9
