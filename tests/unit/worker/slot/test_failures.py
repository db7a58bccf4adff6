"""A slot reports the first failures, then a few a minute; the driver logs each of them once."""

from __future__ import annotations

import json
import logging

import pytest

from spark_bull.model.outcomes import Failed, Outcomes, Retried
from spark_bull.worker.slot import failures
from spark_bull.worker.slot.failure_log import FailureLog
from spark_bull.worker.slot.failures import MOST, PERIOD_S, Failures


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(failures, "monotonic_s", lambda: now[0])
    return now


def outcomes(count: int) -> Outcomes:
    stack = json.dumps(["the first trace", "the last trace"])
    failed = [Failed(str(n), f"reason {n}", stack, None, 1) for n in range(count)]
    return Outcomes("token", failed=failed, retried=[Retried("r", "again", "[]", 0, False)])


def test_the_last_failures_are_reported_with_their_last_traces(clock: list[float]) -> None:
    found = Failures()
    found.add("mail", outcomes(1))
    first, second = found.as_report()
    assert first == {"number": 1, "queue": "mail", "job": "0", "reason": "reason 0", "trace": "the last trace"}
    assert (second["number"], second["reason"], second["trace"]) == (2, "again", "")


def test_a_reason_is_no_trace(clock: list[float]) -> None:
    found = Failures()
    found.add("mail", Outcomes("token", failed=[Failed("1", "no address", json.dumps(["no address"]), None, 1)]))
    assert [(one.reason, one.trace) for one in found.last] == [("no address", "")]


def test_a_slot_reports_a_few_a_minute(clock: list[float]) -> None:
    found = Failures()
    found.add("mail", outcomes(10))
    assert [one["number"] for one in found.as_report()] == [1, 2, 3]
    clock[0] += PERIOD_S
    found.add("mail", outcomes(0))
    assert [one["number"] for one in found.as_report()] == [2, 3, 12]


def test_texts_are_bounded(clock: list[float]) -> None:
    found = Failures()
    found.add("mail", Outcomes("token", failed=[Failed("1", "r" * 10**6, json.dumps(["t" * 10**6]), None, 1)]))
    assert len(json.dumps(found.as_report())) < 5_000


def test_the_driver_logs_each_failure_once_and_a_few_a_minute(
    clock: list[float], own_log: pytest.LogCaptureFixture
) -> None:
    found, log = Failures(), FailureLog("w")
    found.add("mail", outcomes(1))
    reports = [{"slot": slot, "started": 1, "failures": found.as_report()} for slot in range(MOST)] + [
        {"slot": 9, "started": 1}
    ]
    with own_log.at_level(logging.WARNING):
        log.log_reports(reports)
        log.log_reports(reports)
    first, *others = [record.getMessage() for record in own_log.records]
    assert len(others) == MOST - 1
    assert first.startswith("worker w: job 0 of queue mail failed: reason 0; of further failures only a few a minute")
    assert first.endswith("\nthe last trace")
