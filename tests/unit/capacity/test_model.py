"""The model of capacity: what follows from the measured costs."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_bull.capacity.costs import COMMIT, COMPACT_MEMORY, FIXED, MEMORY, VERBS, Line
from spark_bull.capacity.model import NETWORK, USE, Load, plan

LOADS = st.builds(
    Load,
    jobs_per_day=st.floats(1, 1e10),
    peak=st.floats(1, 100),
    payload=st.integers(0, 1_000_000),
    compact_up_to=st.sampled_from([64, 10_000]),
    job_s=st.floats(0, 60),
    backlog_s=st.floats(1, 1e5),
    keep_s=st.floats(0, 1e5),
    trigger_s=st.floats(1, 3_600),
    memory=st.floats(1e9, 1e12),
    executor_cores=st.integers(1, 64),
)


def test_a_cost_grows_with_the_payload() -> None:
    assert Line(3, 2).at(0) == 3
    assert Line(3, 2).at(1_500) == 6


def test_all_constants_are_costs() -> None:
    lines = [COMMIT, *MEMORY.values(), *(line for cost in VERBS.values() for line in vars(cost).values())]
    assert all(line.base >= 0 and line.per_kb >= 0 for line in lines)
    assert all(ms >= 0 for cost in FIXED.values() for ms in vars(cost).values())
    for state, line in MEMORY.items():
        assert COMPACT_MEMORY[state].at(200) < line.at(200)
    assert MEMORY["completed"].at(1_000) > MEMORY["waiting"].at(1_000) > 1_000


@given(LOADS)
def test_redis_needs_what_its_jobs_cost(load: Load) -> None:
    found = plan(load)
    per_job = sum(verb.redis.at(load.payload) for verb in VERBS.values())
    of_jobs = load.jobs_per_day / 86_400 * load.peak * per_job / 1e6
    # Micro-batches cost little, and are all that comes on top.
    assert of_jobs < found.redis_cores <= of_jobs + 0.2
    of_state = COMPACT_MEMORY if load.payload <= load.compact_up_to else MEMORY
    waiting = load.highest * load.backlog_s * of_state["waiting"].at(load.payload)
    completed = load.average * load.keep_s * of_state["completed"].at(load.payload)
    assert found.memory == pytest.approx(waiting + completed)


@given(LOADS)
def test_no_server_is_used_more_than_planned_and_one_less_would_not_do(load: Load) -> None:
    found = plan(load)
    used = (found.redis_cores, found.memory / load.memory, found.network / NETWORK)
    assert max(used) / found.shards <= USE * 1.000001
    if found.shards > 1:
        assert max(used) / (found.shards - 1) > USE * 0.999999


@given(LOADS)
def test_a_load_that_is_multiplied_by_its_first_limit_needs_one_server(load: Load) -> None:
    found = plan(load)
    name, times = next(iter(found.limits.items()))
    assert times == min(found.limits.values())
    assume(name != "Redis' CPU")
    # What micro-batches cost does not grow with the jobs.
    least = plan(replace(load, jobs_per_day=load.jobs_per_day * times * 0.99))
    assert least.limits[name] == pytest.approx(1 / 0.99)
    assert least.shards == 1


@given(LOADS, st.floats(1.1, 10))
def test_more_jobs_never_need_less(load: Load, times: float) -> None:
    less, more = plan(load), plan(replace(load, jobs_per_day=load.jobs_per_day * times))
    for name in (
        "redis_cores",
        "python_cores",
        "jvm_cores",
        "driver_cores",
        "memory",
        "network",
        "shards",
        "executors",
    ):
        assert getattr(more, name) >= getattr(less, name)
    assert more.driver_cores == pytest.approx(times * less.driver_cores)


def test_slots_are_the_time_of_the_processor() -> None:
    without = plan(Load(864_000, peak=2))
    found = plan(Load(864_000, peak=2, job_s=3.0))
    assert found.slots == pytest.approx(60)
    assert found.executors >= ceil(60 / USE / 4) > without.executors
