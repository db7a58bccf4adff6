"""Rows of mode=claim, settled by mode=settle: each outcome counts for its own claim only."""

from __future__ import annotations

from typing import Any

import pytest

from spark_bull.core.queue.work.verbs import promote_due
from tests.support.traffic import script_work
from tests.support.without_spark import ClaimingQuery
from tests.support.work_bench import WorkBench, rescue_all

#: Columns after which a job runs again.
AGAIN: tuple[dict[str, Any], ...] = ({"error": "bad"}, {"delay": 0}, {"rateLimit": 600_000}, {"groupRateLimit": 0})
DONE = {"returnvalue": "1"}


def let_wait(bench: WorkBench) -> None:
    """Lets a job that was delayed by nothing wait, and jobs start in spite of a rate limit."""
    promote_due(bench.handle)
    bench.client.delete(bench.key("rate_limited"), bench.key("limiter"))


@pytest.mark.parametrize("first", AGAIN, ids=str)
def test_an_outcome_of_an_earlier_claim_settles_no_later_one(bench: WorkBench, first: dict[str, Any]) -> None:
    """Both claims are of one query, which repeats the task that has settled the earlier one, or a user does."""
    (job_id,) = bench.add(attempts=3)
    query = ClaimingQuery(bench.queue)
    (earlier,) = query.batch()
    assert query.settle(earlier | first) == {"retried" if "error" in first else "returned": 1}
    before = bench.queue.job(job_id)
    let_wait(bench)
    (later,) = query.batch()
    assert (earlier["id"], later["id"]) == (job_id, job_id)
    for columns in (*AGAIN, DONE):
        assert query.settle(earlier | columns) == {}, "expected an outcome that counted before"
        assert (bench.counts(), bench.locks([job_id])) == ({"active": 1}, [True])
        assert bench.queue.job(job_id).attempts_made == before.attempts_made
    assert bench.client.exists(bench.key("rate_limited"), bench.key("limiter")) == 0
    assert query.settle(later | DONE) == {"completed": 1}


def test_an_outcome_after_the_job_was_rescued_and_claimed_again_is_rejected(bench: WorkBench) -> None:
    (job_id,) = bench.add()
    query = ClaimingQuery(bench.queue)
    (earlier,) = query.batch()
    rescue_all(bench.handle, [job_id])
    (later,) = query.batch()
    assert query.settle(earlier | DONE) == {"lost": 1}
    assert bench.counts() == {"active": 1}
    assert query.settle(later | DONE, earlier | DONE) == {"completed": 1}


def test_rows_of_several_claims_are_settled_in_one_script(bench: WorkBench) -> None:
    ids = bench.add(6, attempts=2)
    query = ClaimingQuery(bench.queue, chunkSize=2)
    rows = query.batch()
    assert len({row["token"] for row in rows}) == 3
    bench.client.set(bench.handle.keys.lock(ids[1]), "another")
    with script_work(bench.client, prefix=bench.handle.keys.prefix) as scripts:
        assert query.settle(*[row | DONE for row in rows[::-1]]) == {"completed": 5, "lost": 1}
    assert len(scripts) == (2 if bench.twice else 1)
    assert bench.counts() == {"active": 1, "completed": 5}


def test_a_restarted_query_settles_what_it_holds(bench: WorkBench) -> None:
    ids = bench.add(5, attempts=2)
    query = ClaimingQuery(bench.queue, chunkSize=2)
    first = query.batch()
    assert query.settle(*[row | DONE for row in first[:2]], first[2] | {"error": "bad"}) == {
        "completed": 2,
        "retried": 1,
    }
    # The lock of one job has expired, and no check for stalled jobs was made since.
    bench.client.delete(bench.handle.keys.lock(ids[3]))
    repeated = query.restart()
    assert [(row["id"], row["token"]) for row in repeated] == [(row["id"], row["token"]) for row in first]
    assert query.settle(*[row | DONE for row in repeated]) == {"completed": 2}
    assert bench.counts() == {"wait": 1, "completed": 4}
    (again,) = query.batch()
    assert again["id"] == ids[2]
    assert query.settle(again | DONE) == {"completed": 1}


def test_a_query_whose_ledger_was_lost_processes_the_jobs_that_it_claims(bench: WorkBench) -> None:
    """As when Redis was emptied, or the query has not run for a week."""
    query = ClaimingQuery(bench.queue)
    bench.add(3)
    assert len(query.batch()) == 3
    bench.client.delete(*bench.client.keys(f"{bench.handle.keys.base}*"))
    ids = bench.add(2)
    query.restart()
    rows = query.batch()
    assert [row["id"] for row in rows] == ids
    assert query.settle(*[row | DONE for row in rows]) == {"completed": 2}
