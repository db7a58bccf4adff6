"""The generated jobs cover all options of the parity tests, and contain nothing that a library refuses."""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any

import pytest

from tests.support.jobs import BIG, DAY, HOUR, new_job_arguments, random_jobs

DIALECTS = ("bull-1", "bull", "bullmq")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_same_seed_gives_the_same_jobs(dialect: str) -> None:
    now = time.time_ns() // 1_000_000
    assert random_jobs(Random(1), dialect, now=now) == random_jobs(Random(1), dialect, now=now)
    assert random_jobs(Random(1), dialect, now=now) != random_jobs(Random(2), dialect, now=now)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_generated_jobs_cover_every_option(dialect: str) -> None:
    jobs = random_jobs(Random(1), dialect, 400)
    opts: list[dict[str, Any]] = [job["opts"] for job in jobs]
    seen = {name for options in opts for name in options}
    ids = [options["jobId"] for options in opts if "jobId" in options]

    assert seen >= {"delay", "timestamp", "lifo", "jobId", "attempts", "backoff", "removeOnComplete", "removeOnFail"}
    assert seen >= {"stackTraceLimit", "timeout", "tenant"}
    assert ("priority" in seen) == (dialect != "bull-1")
    assert len(set(ids)) < len(ids)
    assert max(len(json.dumps(job["data"])) for job in jobs) > BIG
    assert any(job["data"] in ({}, None, "") for job in jobs)
    assert ("name" in jobs[0]) == (dialect != "bull-1")
    assert not any("jobId" in job["opts"] for job in random_jobs(Random(1), dialect, custom_ids=False))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_job_is_due_within_an_hour(dialect: str) -> None:
    now = time.time_ns() // 1_000_000
    for opts in (job["opts"] for job in random_jobs(Random(3), dialect, 400, now=now)):
        due = opts.get("timestamp", now) + opts.get("delay", 0)
        assert due <= now or now + HOUR <= due <= now + 20 * DAY


def test_generated_ids_are_valid_for_bullmq() -> None:
    for opts in (job["opts"] for job in random_jobs(Random(3), "bullmq", 400)):
        job_id = opts.get("jobId", "x")
        assert not job_id.isdigit()
        assert job_id.count(":") in (0, 2)
        assert not job_id.startswith("0:")


def test_options_become_arguments_of_a_new_job() -> None:
    job = {"name": "send", "data": 1, "opts": {"jobId": "a", "removeOnFail": 3, "delay": 5, "timeout": 9}}
    assert new_job_arguments(job) == {
        "data": 1,
        "name": "send",
        "job_id": "a",
        "remove_on_fail": 3,
        "delay": 5,
        "opts": {"timeout": 9},
    }
