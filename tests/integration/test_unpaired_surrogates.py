"""A text with an unpaired surrogate, which UTF-8 can't encode, is refused wherever it enters: an OptionError names what
it is, and nothing is visible."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, Change, FlowJob, NewJob, Promoter, RawJson
from spark_bull.core.errors import ENCODABLE, DialectError, OptionError, SparkBullError
from spark_bull.ops.web.settings import WebSettings
from tests.integration.conftest import Run
from tests.support.web import WRITING, Web

#: What a shell passes on for a byte that is not UTF-8, and half of a pair of UTF-16.
BAD = "a\ud800"


def refused(call: Callable[[], Any], name: str) -> None:
    with pytest.raises(OptionError, match=rf"expected `{name}` to be {ENCODABLE}") as raised:
        call()
    assert str(raised.value).encode()


def test_an_argument_of_a_queue_is_refused(redis_url: str) -> None:
    for name in ("queue", "prefix", "name", "deduplication", "url", "password"):
        given = {"queue": "mail", "url": redis_url} | {name: BAD}
        refused(partial(BullQueue, **given), name)


def test_an_error_does_not_show_a_password(redis_url: str) -> None:
    for secret in ({"url": redis_url, "password": "secret" + BAD}, {"url": f"redis://:secret{BAD}@localhost/0"}):
        with pytest.raises(OptionError, match=ENCODABLE) as raised:
            BullQueue("mail", **secret)
        assert "secret" not in str(raised.value)


def test_a_job_is_refused_before_those_around_it_are_added(queue: BullQueue, client: Redis, prefix: str) -> None:
    for job, name in [
        (NewJob({}, job_id=BAD), "jobId"),
        (NewJob({}, BAD), "name"),
        (NewJob(RawJson(f'"{BAD}"')), "data"),
        (NewJob({}, deduplication=BAD), "deduplication"),
        (NewJob({}, deduplication={"id": BAD}), "deduplication.id"),
        (NewJob({}, parent={"queue": BAD, "id": "1"}), "parent.queue"),
        (NewJob({}, parent={"queue": "mail", "id": BAD}), "parent.id"),
        (NewJob({}, opts={"group": {"id": BAD}}), "opts.group.id"),
        (FlowJob({}, children=[FlowJob({}, queue=BAD)]), "queue"),
        (FlowJob({}, children=[FlowJob({}, job_id=BAD)]), "jobId"),
        (FlowJob({}, children=[FlowJob({}, BAD)]), "name"),
    ]:
        add = queue.add_flows if isinstance(job, FlowJob) else queue.add_many
        refused(partial(add, [*(type(job)({}) for _ in range(600)), job]), name)
        assert client.keys(f"{prefix}:*") == []


def test_a_change_is_refused(queue: BullQueue) -> None:
    queue.add({})
    for change, name in (
        (Change(BAD, "remove"), "id"),
        (Change("1", "move", to=BAD), "to"),
        (Change("1", "fail", failed_reason=BAD), "failedReason"),
        (Change("1", "update", data=RawJson(f'"{BAD}"')), "data"),
    ):
        refused(lambda change=change: list(queue.manage([Change("1", "remove"), change])), name)
    assert queue.counts()["wait"] == 1


#: Values of the other required parameters of methods that take a text; by default, a text.
OTHERS: Mapping[str, Any] = {"state": "wait", "delay": 1, "data": {}, "progress": 1, "priority": 1}
#: What errors call such a parameter, if not by its name.
ALSO_NAMED = {"job_id": ("id",), "reason": ("failedReason",)}
#: Methods whose texts are one of few words or JSON, or are in tests of their own.
ELSEWHERE = ("counts_by", "metrics", "clean", "events", "add", "upsert_scheduler", "page", "cancel", "retry")


def test_every_method_of_a_queue_refuses_such_an_id_or_name(queue: BullQueue) -> None:
    tried = 0
    queue.add({})
    for method, function in inspect.getmembers(BullQueue, inspect.isfunction):
        parameters = list(inspect.signature(function).parameters.values())[1:]
        required = {one.name: OTHERS.get(one.name, "1") for one in parameters if one.default is one.empty}
        for name in (one.name for one in parameters if str(one.annotation).startswith("str")):
            if method.startswith("_") or method in ELSEWHERE:
                continue
            with pytest.raises(SparkBullError) as raised:
                list(getattr(queue, method)(**(required | {name: BAD})) or ())
            if not isinstance(raised.value, DialectError):
                assert ENCODABLE in str(raised.value), (method, name)
                assert any(f"`{one}`" in str(raised.value) for one in (name, *ALSO_NAMED.get(name, ()))), raised.value
                tried += 1
    assert tried > 15

    # The others, whose parameters are not required.
    refused(lambda: queue.upsert_scheduler(BAD, every=1_000), "scheduler_id")
    refused(lambda: queue.upsert_scheduler("a", every=1_000, name=BAD), "name")
    refused(lambda: queue.page("wait", name=BAD), "name")
    refused(lambda: queue.cancel(BAD), "job_id")
    refused(lambda: queue.retry(BAD), "job_id")
    assert queue.schedulers() == []


def test_services_refuse_such_names_of_queues_when_they_are_created(redis_url: str) -> None:
    refused(lambda: Promoter(redis_url, [BAD]), "queues")
    refused(lambda: WebSettings(queues=(f"{BAD}*",)), "queues")


def test_the_command_says_what_it_refuses(queue: BullQueue, run: Run) -> None:
    queue.add({})
    for arguments in [
        ["add", BAD, "{}"],
        ["add", "mail", "{}", "--job-id", BAD],
        ["add", "mail", "{}", "--name", BAD],
        ["add", "mail", f'"{BAD}"'],
        ["counts", BAD],
        ["job", "mail", BAD],
        ["remove", "mail", BAD, "--yes"],
        ["--prefix", BAD, "counts", "mail"],
        ["schedule", "mail", BAD, "--every", "1m"],
        ["promote", BAD],
        ["dispatch", "--input", __file__, "--queue", BAD],
        ["work", "--queue", BAD, "--processor", "json:loads"],
    ]:
        assert ENCODABLE in run(*arguments, code=2)
    assert queue.counts()["wait"] == 1


def test_the_rest_api_refuses_such_texts_in_paths_and_documents(
    queue: BullQueue, web: Web, prefix: str, client: Redis
) -> None:
    queue.add({})
    before = client.keys(f"{prefix}:*")
    for path in ("/queues/%ED%A0%80", "/queues/mail/jobs/%ED%A0%80"):
        web.get(path, code=404)
    for name, value in {
        "jobId": BAD,
        "name": BAD,
        "deduplication": {"id": BAD},
        "parent": {"queue": "mail", "id": BAD},
        "opts": {"group": {"id": BAD}},
    }.items():
        body = json.dumps({"data": {}, name: value})
        headers = WRITING | {"Content-Type": "application/json"}
        assert name in web.ask("POST", "/queues/mail/jobs", code=400, content=body, headers=headers).json()["detail"]
    assert sorted(client.keys(f"{prefix}:*")) == sorted(before)
