"""Changes of many jobs in every dialect: each once, also when calls are repeated and when a write is interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from random import Random
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.errors import DialectError, JobLocked, JobMissing, OptionError, WrongState
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.read_jobs import Change, FlowJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import commit, recover
from spark_bull.core.queue.dispatch.write_records import QueuePlan, StagedChunk, StagedPart, read_outcomes, stage_chunks
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.manage.manage import change_chunks, change_job
from tests.support.dump import PRIVATE, Dump, Window, difference, dump, normalise
from tests.support.jobs import HOUR
from tests.support.work_bench import WorkBench, each_dialect_by_name, not_bull_1, only_bullmq

COLUMNS = {"resetAttempts": "reset_attempts", "failedReason": "failed_reason"}


def register_changes(handle: QueueHandle, write_id: str, changes: Sequence[Change], chunk_size: int = 7) -> None:
    """Stages and registers a write that changes jobs, as the sink does."""
    names = ("id", "action", "data", "delay", "priority", "lifo", "resetAttempts", "state", "failedReason", "to")
    rows = {name: [asdict(change)[COLUMNS.get(name, name)] for change in changes] for name in names}
    # Columns have JSON.
    rows["data"] = [str(change.data) if change.action == "update" else None for change in changes]
    stage = handle.keys.stage(f"{write_id}.0.0")
    chunks = list(change_chunks(handle, rows, range(len(changes)), chunk_size, 1 << 20))
    stage_chunks(handle.connection, [StagedChunk(stage, n, chunk.packed) for n, chunk in enumerate(chunks)], HOUR)
    part = StagedPart(stage, len(chunks), len(changes))
    assert register(write_id, [QueuePlan(handle, [part], {"mode": "manage", "outcomes": 1})], None)


def random_changes(random: Random, ids: Sequence[str], dialect: str) -> list[Change]:
    kinds: list[dict[str, Any]] = [
        {"action": "retry", "reset_attempts": True},
        {"action": "promote"},
        {"action": "delay", "delay": 0},
        {"action": "update", "data": 7},
        {"action": "remove"},
        {"action": "fail", "failed_reason": "bad"},
        {"action": "complete"},
    ]
    if dialect != "bull-1":
        kinds.append({"action": "prioritize", "priority": 2})
    return [Change(random.choice([*ids, "gone"]), **random.choice(kinds)) for _ in range(60)]


def fill(queue: BullQueue) -> list[str]:
    """Adds 30 jobs: waiting, delayed and failed ones."""
    jobs = [NewJob({"n": n}, delay=HOUR if n % 3 == 0 else None, timestamp=1_700_000_000_000) for n in range(20)]
    ids = queue.add_many([NewJob({"n": n}) for n in range(10)] + jobs).ids
    for job_id in ids[:10]:
        queue.fail(job_id, "bad")
    return ids


def test_outcomes_say_what_became_of_each_change(bench: WorkBench) -> None:
    failed, waiting, locked = bench.add(3)
    bench.queue.fail(failed, "bad")
    bench.client.set(bench.handle.keys.lock(locked), "a worker")
    changes = [Change(failed, "retry"), Change("gone", "retry"), Change(waiting, "retry"), Change(locked, "remove")]
    outcomes = [(one.id, one.outcome) for one in bench.queue.manage(changes)]
    assert outcomes == [(failed, "done"), ("gone", "missing"), (waiting, "wrong_state"), (locked, "locked")]
    # A change of one job raises why it was not made.
    with pytest.raises(JobMissing, match="expected a job gone in queue q, found none"):
        bench.queue.update_data("gone", 1)
    with pytest.raises(WrongState, match=f"expected job {waiting} of queue q to be delayed, it is wait"):
        change_job(bench.handle, Change(waiting, "promote"))
    with pytest.raises(JobLocked, match="is locked by a worker"):
        bench.queue.complete(locked)
    assert bench.counts() == {"wait": 3}
    with pytest.raises(OptionError, match=r"row 0 \(job 1\): expected `to` to be another queue, got the job's own"):
        bench.queue.move("1", "q")


def test_progress_and_log_rows_are_reported_and_removed_from_outside(bench: WorkBench) -> None:
    (job_id,) = bench.add()
    bench.queue.update_progress(job_id, {"done": 3})
    assert [bench.queue.log(job_id, row, keep=2) for row in ("a", "b", "c")] == [1, 2, 2]
    job = bench.queue.job(job_id)
    assert (job.progress, bench.queue.logs(job_id)) == ({"done": 3}, ["b", "c"])
    bench.queue.clear_logs(job_id, keep=1)
    assert bench.queue.logs(job_id) == ["c"]
    bench.queue.clear_logs(job_id)
    assert not bench.client.exists(bench.handle.keys.logs(job_id))
    for report in (bench.queue.update_progress, bench.queue.log, lambda gone, _: bench.queue.clear_logs(gone)):
        with pytest.raises(JobMissing, match="expected a job gone in queue q, found none"):
            report("gone", "50")
    with pytest.raises(OptionError, match="expected `keep` to be an integer >= 0, got: -1"):
        bench.queue.clear_logs(job_id, keep=-1)
    with pytest.raises(OptionError, match="`progress`"):
        bench.queue.update_progress(job_id, {1, 2})
    bench.client.hset(bench.handle.keys.job(job_id), "progress", '{"progress": 1, "checkpoint": 5}')
    with pytest.raises(WrongState, match=f"expected job {job_id} of queue q to have no checkpoint"):
        bench.queue.update_progress(job_id, 2)


def test_a_waiting_job_is_delayed_and_comes_back_when_it_is_promoted(bench: WorkBench) -> None:
    for paused in (False, True):
        first, second, third = bench.add(3)
        if paused:
            bench.queue.pause()
        for job_id in (second, first):
            bench.queue.change_delay(job_id, HOUR)
        (waiting,) = (state for state in bench.counts() if state != "delayed")
        assert bench.counts() == {waiting: 1, "delayed": 2}
        late = bench.queue.job(second)
        assert (late.state, late.delay) == ("delayed", HOUR)
        assert 0 <= late.run_at - bench.handle.connection.now_ms() <= HOUR
        bench.queue.promote(second)
        assert [job.id for job in bench.queue.page(waiting)] == [third, second]
        assert bench.counts() == {waiting: 2, "delayed": 1}
        bench.queue.obliterate()


@not_bull_1
def test_a_waiting_job_takes_the_place_of_its_new_priority(bench: WorkBench) -> None:
    ids = bench.add(4)
    for job_id, priority in ((ids[3], 2), (ids[2], 1), (ids[1], 2)):
        bench.queue.change_priority(job_id, priority)
    bench.queue.change_priority(ids[0], 2, lifo=True)
    late = ids[2]
    bench.queue.change_delay(late, HOUR)
    assert bench.client.zcard(bench.key("priority")) == (0 if bench.queue.protocol == "bullmq" else 3)
    bench.queue.promote(late)
    claimed = [job.id for job in bench.claim().jobs]
    assert claimed == [late, ids[0], ids[3], ids[1]]


def test_jobs_that_do_not_wait_are_not_delayed(bench: WorkBench) -> None:
    done, failed, active = bench.add(3)
    bench.queue.complete(done)
    bench.queue.fail(failed, "bad")
    assert [job.id for job in bench.claim(1).jobs] == [active]
    for job_id, state in ((done, "completed"), (failed, "failed"), (active, "active")):
        with pytest.raises(WrongState, match=f"job {job_id} of queue q to be waiting or delayed, it is {state}"):
            bench.queue.change_delay(job_id, 1)
    assert bench.counts() == {"active": 1, "completed": 1, "failed": 1}


def test_many_waiting_jobs_are_delayed_in_the_middle_of_a_long_list(bench: WorkBench) -> None:
    ids = bench.queue.add_many(NewJob({}) for _ in range(6_000)).ids
    wanted = ids[3_000:3_200]
    assert {one.outcome for one in bench.queue.manage(Change(i, "delay", delay=HOUR) for i in wanted)} == {"done"}
    assert bench.counts() == {"wait": 5_800, "delayed": 200}
    assert [job.id for job in bench.queue.page("delayed")] == wanted


def test_a_wrong_change_is_refused_with_its_row_and_job(bench: WorkBench) -> None:
    said = r"row 1 \(job 8\): expected `action` to be one of retry, .*'retyr' \(did you"
    with pytest.raises(OptionError, match=said):
        list(bench.queue.manage([Change("7", "retry"), Change("8", "retyr")]))
    if bench.queue.protocol == "bull-1":
        said = r"expected no action prioritize for a queue of bull-1: jobs .* no priority"
        with pytest.raises(DialectError, match=said):
            bench.queue.change_priority("1", 1)


def test_a_job_ends_by_its_own_keep_rule(bench: WorkBench) -> None:
    kept, dropped = bench.add(), bench.add(remove_on_complete=True)
    bench.queue.complete(kept[0], {"sum": 1})
    bench.queue.complete(dropped[0])
    assert bench.counts() == {"completed": 1}
    job = bench.queue.job(kept[0])
    assert job.returnvalue == {"sum": 1}
    assert bench.locks([*kept, *dropped]) == [False, False]


@only_bullmq
def test_a_parent_learns_that_its_child_has_ended(bench: WorkBench) -> None:
    flow = bench.queue.add_flow(FlowJob({}, children=[FlowJob({}), FlowJob({})]))
    first, second = (child.id for child in flow.children)
    bench.queue.complete(first, 1)
    assert bench.counts() == {"waiting-children": 1, "wait": 1, "completed": 1}
    with pytest.raises(WrongState):
        bench.queue.complete(flow.id)
    bench.queue.complete(second, 2)
    assert bench.counts()["wait"] == 1
    assert sorted(bench.queue.children_values(flow.id).values()) == [1, 2]


@each_dialect_by_name
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2, 3))])
def test_an_interrupted_write_makes_the_changes_of_a_direct_call(
    client: Redis, open_queue: Callable[..., BullQueue], prefix: str, dialect: str, seed: int
) -> None:
    """Every call is repeated, as if its reply had been lost, and another process makes the rest of the changes."""
    window = Window()
    # Bull 1 publishes outside the prefix, so the name of the queue must be unique.
    direct, written = (open_queue(f"{name}-{prefix}", dialect) for name in ("direct", "written"))
    changes = random_changes(Random(seed), fill(direct), dialect)
    outcomes = list(direct.manage(changes))
    fill(written)
    register_changes(written.handle, "w", changes)
    position = 0
    for _ in range(Random(seed).randrange(1, 8)):
        position = commit(written.handle, "w", position, "commit_managed").position
        assert commit(written.handle, "w", 0, "commit_managed").position == position
    (record,) = recover(replace(written.handle, token="another process"))
    assert list(read_outcomes(written.handle, "w")) == outcomes
    assert [(one.id, one.action) for one in outcomes] == [(one.id, one.action) for one in changes]
    counts = Counter(one.outcome for one in outcomes)
    counted = {"done": record.changed, "missing": record.missing, "wrong_state": record.wrong_state}
    assert (record.state, record.jobs, counts) == ("finished", len(changes), counted)
    left, right = (dump(client, prefix, queue.name) for queue in (direct, written))
    assert not difference(*(without_order(normalise(side, window)) for side in (left, right)))
    kept = {name: key.expires for name, key in right.items() if name.startswith(PRIVATE)}
    assert not [name for name in kept if "stage" in name or "manifest" in name or "open" in name]
    assert all(kept.values()), kept


def without_order(normal: Dump) -> Dump:
    """Jobs that end, or are due, at about the same time have an order that depends on the millisecond."""
    sorted_states = {name: normal[name] for name in ("completed", "failed", "delayed") if name in normal}
    members = {
        name: replace(key, value=sorted(str(member[0]) if key.type == "zset" else member for member in key.value))
        for name, key in sorted_states.items()
    }
    return normal | members
