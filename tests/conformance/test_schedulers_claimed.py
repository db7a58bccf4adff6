"""Job schedulers whose jobs a test claims itself: each claim adds the next job of a job scheduler once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_bull import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.schedule.advance import ADVANCE_SIZE
from spark_bull.core.queue.work import claim as claims
from spark_bull.core.queue.work.claim_ledger import ClaimLedger
from spark_bull.run.claims.claimer import Claimer
from tests.support.jobs import HOUR
from tests.support.work_bench import CLAIM_SETTINGS, WorkBench, not_bull_1, only_bullmq


def make(bench: WorkBench, *names: str, **rhythm: Any) -> None:
    """Makes job schedulers, and lets their first jobs wait."""
    for name in names:
        bench.queue.upsert_scheduler(name, every=HOUR, data={"of": name}, **rhythm)
    let_wait(bench)


def let_wait(bench: WorkBench) -> None:
    for job in bench.queue.page("delayed"):
        bench.queue.promote(job.id)


def claim(bench: WorkBench, call: str = "") -> list[str]:
    return [job.id for job in claims.work(bench.handle, CLAIM_SETTINGS, None, 1000, call=call).jobs]


def following(bench: WorkBench) -> list[Any]:
    """The job schedulers that have a next job."""
    return sorted(job.data["of"] for job in bench.queue.page("delayed"))


def claimer(bench: WorkBench) -> Claimer:
    """The claimer of a claiming query."""
    return Claimer(ClaimLedger(bench.handle, "reader"), WorkSettings("reader", 20_000), 500)


class Killed(Exception):
    """Stands for a process that dies."""


@contextmanager
def dying_after_claim(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that claims in the block dies after the claim."""

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(claims, "advance", killed)
        with pytest.raises(Killed):
            yield


@not_bull_1
def test_a_repeated_claim_advances_a_scheduler_once(bench: WorkBench) -> None:
    make(bench, "one", "two")
    ids = claim(bench, "the same")
    before = bench.public()
    assert claim(bench, "the same") == ids
    assert bench.public() == before
    assert (len(ids), following(bench)) == (2, ["one", "two"])


@not_bull_1
def test_a_restarted_claiming_query_continues_the_scheduler(bench: WorkBench, monkeypatch: pytest.MonkeyPatch) -> None:
    make(bench, "one")
    with dying_after_claim(monkeypatch):
        claimer(bench).claim(10)
    assert (claimer(bench).end(), following(bench)) == (1, [])
    for _ in range(2):
        claimer(bench).take_up(0, 1)
        assert following(bench) == ["one"]


@not_bull_1
def test_a_query_whose_claim_got_no_reply_continues_it(bench: WorkBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add()
    query = claimer(bench)
    assert query.claim(10) == 1
    make(bench, "one")
    with dying_after_claim(monkeypatch):
        query.claim(10)
    query.take_up(1, query.end())
    assert following(bench) == ["one"]
    let_wait(bench)
    assert query.claim(10) == 1
    assert following(bench) == ["one"], "a claim that ends continues it, too"


@pytest.mark.parametrize("bench", ["bull"], indirect=True)
def test_an_early_job_that_is_claimed_again_does_not_restart_an_ended_scheduler(bench: WorkBench) -> None:
    """The job scheduler has reached its limit, which the options of an early job do not show."""
    make(bench, "one", limit=2)
    (first,) = claim(bench)
    let_wait(bench)
    (last,) = claim(bench)
    assert following(bench) == []
    bench.client.delete(bench.handle.keys.job(last))
    claims.take_up(bench.handle, "token", [first], 20_000)
    assert following(bench) == []


@not_bull_1
def test_hundreds_of_schedulers_in_one_claim_advance_once_each(
    bench: WorkBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"schedule-{n:03}" for n in range(2 * ADVANCE_SIZE + 5)]
    make(bench, *names)
    verbs = ran_verbs(monkeypatch)
    ids = claim(bench)
    # On a slow machine, the claim also extends its locks meanwhile.
    assert [verb for verb in verbs if verb != "extend"] == ["work"] + ["advance"] * 3
    assert (len(ids), following(bench)) == (len(names), names)


@not_bull_1
def test_jobs_without_a_scheduler_need_no_further_script(bench: WorkBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add(5)
    verbs = ran_verbs(monkeypatch)
    assert (len(claim(bench)), verbs) == (5, ["work"])
    bench.queue.add_many([NewJob({"n": 1}, job_id="repeat:x:1")])
    assert (claim(bench), following(bench)) == (["repeat:x:1"], [])


def ran_verbs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records the verbs whose scripts are run from now on."""
    verbs: list[str] = []
    run = QueueHandle.run

    def noting(handle: QueueHandle, verb: str, *args: Any, **keys: Any) -> Any:
        verbs.append(verb)
        return run(handle, verb, *args, **keys)

    monkeypatch.setattr(QueueHandle, "run", noting)
    return verbs


@not_bull_1
def test_an_invalid_pattern_is_logged_and_its_job_runs(bench: WorkBench, caplog: pytest.LogCaptureFixture) -> None:
    make(bench, "fine", "broken")
    broken = next(job.id for job in bench.queue.page("wait") if job.data == {"of": "broken"})
    opts = {"repeat": {"pattern" if bench.bullmq else "cron": "at full moon", "count": 1}, "timestamp": 1, "delay": 0}
    bench.client.hset(bench.handle.keys.job(broken), "opts", json.dumps(opts))
    assert (len(claim(bench)), following(bench)) == (2, ["fine"])
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert broken in record.getMessage()
    assert "at full moon" in record.getMessage()


@only_bullmq
def test_a_scheduler_key_of_a_wrong_type_does_not_affect_others(
    bench: WorkBench, caplog: pytest.LogCaptureFixture
) -> None:
    make(bench, "fine", "broken")
    key = f"{bench.handle.keys['repeats']}:broken"
    bench.client.delete(key)
    bench.client.set(key, "no hash")
    assert (len(claim(bench)), following(bench)) == (2, ["fine"])
    assert "repeat:broken:" in caplog.text
