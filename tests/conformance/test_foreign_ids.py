"""The numbers that jobs get as ids, when somebody else has set the counter or has the key of the next one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from spark_bull.core.errors import QueueDamaged
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.writes import roll_forward
from spark_bull.core.queue.dispatch.written import written_ids
from tests.support.work_bench import WorkBench
from tests.support.writes import stage_all

#: The first number that Lua and Node can't tell from the next one.
LIMIT = 2**53
#: Jobs that have nothing but a payload are added in another way than those beside a job with more.
WAYS = pytest.mark.parametrize("others", [[], [{"lifo": True}]], ids=["plain jobs", "with another"])


def jobs(count: int, others: list[dict[str, Any]]) -> list[NewJob]:
    return [*(NewJob({"n": n}) for n in range(count)), *(NewJob({"n": count}, **other) for other in others)]


def waiting(bench: WorkBench) -> dict[str, Any]:
    """The payloads of the waiting jobs, by their ids."""
    return {job.id: job.data for job in bench.queue.page("wait")}


@WAYS
def test_a_counter_that_is_too_large_or_no_number_is_refused_before_anything_is_added(
    bench: WorkBench, others: list[dict[str, Any]]
) -> None:
    more = jobs(6 - len(others), others)
    for counter in (LIMIT - 6, LIMIT, 2**63 - 1, "abc", "1.5"):
        bench.client.set(bench.key("id"), counter)
        before = {*bench.client.scan_iter(match=f"{bench.handle.keys.base}*")}
        found = re.escape(f"expected {bench.key('id')} to be a number below 2^53, found '{counter}'")
        with pytest.raises(QueueDamaged, match=found):
            bench.queue.add_many(more)
        assert bench.client.get(bench.key("id")) == str(counter).encode()
        public = {key for key in bench.client.scan_iter(match=f"{bench.handle.keys.base}*") if b":spark:" not in key}
        assert public <= before
    bench.client.set(bench.key("id"), LIMIT - 7)
    ids = bench.queue.add_many(more).ids
    assert ids == [str(LIMIT - 6 + n) for n in range(6)]
    assert waiting(bench) == {job_id: {"n": n} for n, job_id in enumerate(ids)}


@WAYS
def test_a_number_whose_key_somebody_has_is_passed_over(bench: WorkBench, others: list[dict[str, Any]]) -> None:
    taken = {"2": "string", "4": "list", "5": "hash"}
    bench.client.set(bench.handle.keys.job("2"), "x")
    bench.client.rpush(bench.handle.keys.job("4"), "x")
    bench.client.hset(bench.handle.keys.job("5"), "theme", "dark")
    for _ in range(2):
        ids = bench.queue.add_many(jobs(5, others)).ids
        assert not {*ids} & {*taken}
        found = waiting(bench)
        assert [found[job_id] for job_id in ids] == [{"n": n} for n in range(5 + len(others))]
    assert len(found) == 2 * len(ids)
    assert {job_id: bench.client.type(bench.handle.keys.job(job_id)).decode() for job_id in taken} == taken
    assert bench.client.hgetall(bench.handle.keys.job("5")) == {b"theme": b"dark"}
    assert bench.queue.remove_orphans() == 0
    last = int(bench.client.get(bench.key("id")) or 0)
    bench.client.set(bench.handle.keys.job(str(last + 2)), "x")
    register("w", [stage_all(bench.handle, "w", [jobs(3, others)], 10, keepsIds=1)], None)
    roll_forward(bench.handle, "w")
    kept = [bench.queue.job(job_id) for job_id in written_ids(bench.handle, "w")]
    assert [job and job.data for job in kept] == [{"n": n} for n in range(3 + len(others))]
