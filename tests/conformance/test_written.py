"""Writes that keep the ids of their jobs, and the jobs that are found by them, in every dialect."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_bull.errors import OptionError, WaitTimeout
from spark_bull.model.jobs import NewJob
from spark_bull.queue.core.walk import Slice
from spark_bull.queue.dispatch.registration import register
from spark_bull.queue.dispatch.writes import roll_forward
from spark_bull.queue.dispatch.written import check_kept, read_written, wait_for_written, written_ids
from tests.support.wait import PATIENCE_S
from tests.support.work_bench import WorkBench, completed
from tests.support.writes import register_all, stage_all


def write(bench: WorkBench, write_id: str, jobs: list[NewJob], **fields: int) -> None:
    register(write_id, [stage_all(bench.handle, write_id, [jobs], 10, **fields)], None)
    roll_forward(bench.handle, write_id)


def test_a_write_keeps_the_ids_of_its_jobs_in_order_only_if_it_is_told_to(bench: WorkBench) -> None:
    bench.queue.add({}, job_id="own-3")
    jobs = [NewJob({"n": n}, job_id=f"own-{n}" if n % 5 == 3 else None) for n in range(25)]
    write(bench, "w", jobs, keepsIds=1)
    ids = list(written_ids(bench.handle, "w"))
    assert len(ids) == 25
    assert [ids[n] for n in range(3, 25, 5)] == [f"own-{n}" for n in range(3, 25, 5)]
    numbers = [int(job_id) for job_id in ids if job_id.isdigit()]
    assert numbers == sorted(numbers)
    assert all(bench.queue.job(job_id) for job_id in ids)
    assert check_kept([bench.handle], "w") == 25
    assert 0 < bench.client.pttl(bench.handle.keys.kept_ids("w")) <= 30 * 86_400_000
    write(bench, "plain", jobs[:1])
    assert not bench.client.exists(bench.handle.keys.kept_ids("plain"))
    with pytest.raises(OptionError, match=r"write plain of q to have kept the ids .* keepIds=true"):
        check_kept([bench.handle], "plain")
    with pytest.raises(OptionError, match="expected `writeId` to be the id of a write to q of the last 30 days"):
        check_kept([bench.handle], "unknown")


def test_the_jobs_of_a_write_have_their_states_and_those_that_are_gone_have_none(bench: WorkBench) -> None:
    bench.add(1)
    write(bench, "w", [NewJob({"n": n}) for n in range(25)], keepsIds=1)
    ids = list(written_ids(bench.handle, "w"))
    bench.queue.remove(ids[7])
    bench.work(completed(bench.claim(3), "7"))
    found = {}
    for number in range(3):
        part = written_ids(bench.handle, "w", Slice(number, 3))
        for chunk in read_written(bench.handle, part, (), ["returnvalue"], 10):
            values = chunk.column("returnvalue")
            found |= {
                job_id.decode(): (state, value)
                for job_id, state, value in zip(chunk.ids, chunk.states, values, strict=True)
            }
    assert found.keys() == set(ids)
    assert [found[job_id][0] for job_id in ids[:2]] == ["completed"] * 2
    assert found[ids[0]][1] == b"7"
    assert found[ids[7]] == (None, None)
    assert found[ids[20]][0] == "wait"


def test_a_write_that_is_not_finished_has_not_ended(bench: WorkBench) -> None:
    register_all(bench.handle, "w", [[NewJob({"n": n}) for n in range(12)]], 10, keepsIds=1)
    with pytest.raises(WaitTimeout, match=r"expected write w of q to add all its 12 jobs within 0\.01 s"):
        wait_for_written(bench.handle, "w", 0.01)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_for_written, bench.handle, "w", PATIENCE_S)
        roll_forward(bench.handle, "w")
        bench.work(completed(bench.claim(12)))
        waiting.result(PATIENCE_S)


def test_one_can_wait_until_all_jobs_of_a_write_have_ended(bench: WorkBench) -> None:
    write(bench, "w", [NewJob({"n": n}) for n in range(12)], keepsIds=1)
    with pytest.raises(WaitTimeout):
        wait_for_written(bench.handle, "w", 0)
    bench.work(completed(bench.claim(12)))
    wait_for_written(bench.handle, "w", 0)
