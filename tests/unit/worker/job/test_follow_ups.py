"""Follow-ups are checked when a processor asks for them, without Redis."""

from __future__ import annotations

from typing import Any

import pytest

from spark_bull.dialects.registry import DIALECTS
from spark_bull.errors import DialectError, OptionError, SparkBullError
from spark_bull.keys import QueueKeys
from spark_bull.model.jobs import NewJob, RawJson
from spark_bull.model.outcomes import MAX_FOLLOW_UPS, ClaimedJob, Failed, Outcomes, Retried
from spark_bull.options.parse import parse_arguments
from spark_bull.options.table import QUEUE
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.dispatch.follow_ups import MAX_SIZE
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of
from spark_bull.worker.job.running_job import RunningJob


def running(protocol: str = "bullmq", queue: str = "q", prefix: str = "bull") -> RunningJob:
    """A job of a queue in a Redis that does not exist."""
    settings = settings_of(parse_arguments({"url": "redis://localhost:1", "retry_ms": 0}, QUEUE))
    handle = QueueHandle(Connection(settings), QueueKeys(queue, prefix), DIALECTS[protocol])
    return RunningJob(ClaimedJob("7"), handle)


@pytest.mark.parametrize(
    ("job", "more", "message"),
    [
        ({"to": "ada"}, {}, "expected `job` to be a NewJob"),
        (NewJob({}), {"on": "always"}, "expected `on` to be success or failure, got: 'always'"),
        (NewJob({}), {"queue": 7}, "expected `queue` to be the name of a queue, got: 7"),
        (NewJob({}), {"queue": ""}, "expected `queue` to be the name of a queue, got an empty one"),
        (NewJob({}), {"queue": "a:b"}, "expected `queue` without ':'"),
        (NewJob({}, delay=-1), {}, "expected `delay` to be ms >= 0, got: -1"),
        (NewJob({}, job_id="12"), {}, "expected `jobId` not to be an integer"),
        (NewJob({}, job_id="\ud800"), {}, "UTF-8"),
        (NewJob(object()), {}, "expected `data` to be a value that JSON can hold"),
        (NewJob("x" * (MAX_SIZE + 1)), {}, "at most 4,194,304 characters, got 4,19.*store large payloads elsewhere"),
    ],
)
def test_an_invalid_follow_up_is_refused_and_forgotten(job: Any, more: dict[str, Any], message: str) -> None:
    running_job = running()
    with pytest.raises(OptionError, match=message):
        running_job.then(job, **more)
    assert running_job.follow_ups == ()


def test_a_property_that_the_dialect_lacks_is_refused() -> None:
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


def test_outcomes_without_follow_ups_do_not_mention_them() -> None:
    outcomes = Outcomes("token")
    outcomes.complete("7", "1")
    assert "follow_ups" not in outcomes.packable()


def test_only_follow_ups_that_belong_to_the_outcome_are_sent() -> None:
    job = running()
    job.then(NewJob(RawJson("1")))
    job.then(NewJob(RawJson("2")), on="failure")
    completed, failed, retried = (Outcomes("token", follow_ups=list(job.follow_ups)) for _ in range(3))
    completed.complete("7", "1")
    failed.add_failure(Failed("7", "bad", "[]", None, 1))
    retried.add_failure(Retried("7", "bad", "[]", 0, lifo=False))
    sent = [outcomes.packable().get("follow_ups") for outcomes in (completed, failed, retried)]
    assert [[group["jobs"]["data"] for group in groups or ()] for groups in sent] == [[["1"]], [["2"]], []]
