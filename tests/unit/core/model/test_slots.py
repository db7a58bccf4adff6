"""The number of slots follows the backlog: up at once, down when fewer were enough for some time."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_bull.core.model.limits import (
    GROW_ABOVE,
    LOOKS,
    SHRINK_BELOW,
    Look,
    Need,
    SlotRange,
    SlotRate,
    SlotScale,
    wanted_slots,
)

LIMITS = SlotRange(1, 40)
LOOK_S = 2.0


@given(
    st.lists(st.builds(Need, st.floats(0, 100), st.floats(0, 1_000)), min_size=1, max_size=2 * LOOKS),
    st.integers(0, 60),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_the_number_stays_within_its_limits_and_changes_for_a_reason(
    needs: list[Need], current: int, least: int, more: int
) -> None:
    limits = SlotRange(least, least + more)
    wanted = wanted_slots(needs, current, limits)
    assert wanted >= least
    # Slots above the limit, which falls when executors are lost, end when they are not needed.
    assert wanted <= max(limits.most, current)
    if current >= least:
        assert wanted <= max(1, 2 * current)
        if wanted > current:
            assert needs[-1].for_backlog > GROW_ABOVE * current
        if wanted < current:
            assert all(need.for_backlog < SHRINK_BELOW * current for need in needs[-LOOKS:])
    # What a change leads to is no reason for another one.
    assert wanted_slots([*needs, Need(min(needs[-1].busy, wanted), wanted)], wanted, limits) in (wanted, least)


def test_the_rate_of_attempts_that_take_long_falls_while_none_ends() -> None:
    rate = SlotRate()
    assert rate.per_s is None
    rates = []
    for _ in range(3):
        rate.add(0, 10.0)
        rates.append(rate.per_s)
    assert rates == [pytest.approx(1 / 10), pytest.approx(1 / 20), pytest.approx(1 / 30)]


def test_the_rate_follows_jobs_that_become_slow() -> None:
    rate = SlotRate()
    for _ in range(50):
        rate.add(1_000, 10.0)
    for _ in range(100):
        rate.add(10, 10.0)
    assert rate.per_s == pytest.approx(1.0, rel=0.05)


class Simulation:
    """A queue and a worker whose jobs take `job_s`, look by look; slots start at the look after they were wanted."""

    def __init__(self, job_s: float, limits: SlotRange = LIMITS, target_wait_s: float = 30.0) -> None:
        self.job_s, self.limits = job_s, limits
        self.scale = SlotScale(target_wait_s)
        self.slots, self.running, self.waiting, self.ended, self.now_s = limits.least, 0, 0.0, 0.0, 0.0
        self.history: deque[int] = deque()

    def look(self, arrivals: float) -> int:
        """Runs until the next look, before which `arrivals` jobs arrive."""
        self.running = self.slots
        self.waiting += arrivals
        done = min(self.waiting, self.running * LOOK_S / self.job_s)
        self.waiting -= done
        self.ended += done
        self.now_s += LOOK_S
        busy = self.running if self.waiting >= 1 else done * self.job_s / LOOK_S
        look = Look(self.now_s, int(self.waiting), busy, self.running, int(self.ended))
        self.slots = self.scale.wanted(look, self.slots, self.limits)
        self.history.append(self.slots)
        return self.slots

    def run(self, looks: int, arrivals: float = 0.0) -> list[int]:
        return [self.look(arrivals) for _ in range(looks)]


@given(st.floats(0.05, 60), st.integers(0, 4))
def test_a_step_of_the_load_is_followed_up_in_few_looks_and_down_to_the_least(job_s: float, least: int) -> None:
    """With jobs that wait for longer than the target even with all slots, all of them are started."""
    worker = Simulation(job_s, SlotRange(least, 40))
    assert set(worker.run(20)) == {least}
    worker.waiting = 3 * ceil(40 * 30 / job_s)
    up = worker.run(60)
    assert 40 in up
    # Each look at most doubles the number; the first ones measure the rate.
    assert up.index(40) <= 6 + ceil(30 / LOOK_S)
    while worker.waiting >= 1:
        worker.look(0)
    down = worker.run(3 * LOOKS)
    assert down[-1] == least
    assert down == sorted(down, reverse=True)


@settings(max_examples=40)
@given(st.floats(0.1, 20), st.floats(0.5, 35))
def test_a_steady_load_gets_slots_for_it_and_keeps_them(job_s: float, load: float) -> None:
    """load: how many slots it keeps busy."""
    worker = Simulation(job_s)
    arrivals = load * LOOK_S / job_s
    worker.run(200, arrivals)
    settled = worker.run(100, arrivals)
    # A number that is a little too small grows once, when enough jobs wait, and may grow by more than the load needs.
    assert sum(after > before for before, after in pairwise(settled)) <= 1
    most = settled.index(max(settled))
    assert settled[most:] == sorted(settled[most:], reverse=True)
    assert settled[-1] <= max(1, load / SHRINK_BELOW + 1)
    # The jobs that wait start within the target, and the hysteresis.
    assert worker.waiting * job_s / settled[-1] <= 30 * GROW_ABOVE + LOOK_S + job_s


def test_jobs_that_wait_beside_free_slots_start_no_others() -> None:
    """As with a limit of the queue, or a queue that is paused."""
    scale = SlotScale(30.0)
    for n in range(50):
        assert scale.wanted(Look(2.0 * n, 100_000, 0.0, 2, 10 * n), 2, LIMITS) <= 2


def test_rare_jobs_keep_a_slot_although_no_look_sees_them() -> None:
    scale, limits = SlotScale(30.0), SlotRange(0, 4)
    for n in range(100):
        # One job in ten looks.
        assert scale.wanted(Look(2.0 * n, 0, 0.0, 1, n // 10), 1, limits) == 1
    wanted = [scale.wanted(Look(200.0 + 2 * n, 0, 0.0, 1, 9), 1, limits) for n in range(2 * LOOKS)]
    assert wanted[-1] == 0
