"""Calls: jobs whose outcomes are in private parents. Every test runs with each script sent once, and sent again.

And with jobs that are removed when they end, and with jobs that are kept until they are gathered, as always in Bull.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from spark_bull.core.clock import monotonic_s
from spark_bull.core.errors import IntakeClosed, OptionError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.outcomes import Claim, Failed, Outcomes, Retried
from spark_bull.core.queue.call import caller as calling
from spark_bull.core.queue.call import flight
from spark_bull.core.queue.call.caller import CALL_LEASE_MS, Call, CallEnd, Caller, Details, parent_ids, sweep
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.run.job.job_options import keep_of
from tests.support.traffic import script_work
from tests.support.wait import wait_until
from tests.support.work_bench import WorkBench, completed

pytestmark = pytest.mark.parametrize(
    ("bench", "details"),
    [("bullmq", False), ("bullmq", True), ("bull", False), ("bull-1", False)],
    indirect=True,
)

DAY_MS = 86_400_000
NAME = "aa-0"


@pytest.fixture
def details(request: pytest.FixtureRequest) -> bool:
    """Whether outcomes have details."""
    return bool(request.param)


@pytest.fixture
def new_caller(bench: WorkBench, details: bool) -> Callable[..., Caller]:
    def new_caller(name: str = NAME, **defaults: Any) -> Caller:
        return Caller(bench.handle, name, keep_ms=DAY_MS, defaults=defaults, details=details)

    return new_caller


@pytest.fixture
def caller(new_caller: Callable[..., Caller]) -> Caller:
    return new_caller()


def texts(count: int) -> list[str]:
    return [json.dumps({"n": n}) for n in range(count)]


def complete(bench: WorkBench, claim: Claim, value: str = "1") -> None:
    """A worker completes jobs."""
    bench.work(completed(claim, value, **(kept_by(bench, claim, "removeOnComplete") or {})))


def fail(bench: WorkBench, claim: Claim, reason: str) -> None:
    keep = kept_by(bench, claim, "removeOnFail")
    bench.work(Outcomes(claim.token, failed=[Failed(job.id, reason, "[]", keep, 1) for job in claim.jobs]))


def kept_by(bench: WorkBench, claim: Claim, name: str) -> Any:
    """The rule of the jobs."""
    return keep_of(bench.handle.dialect, claim.jobs[0].opts, name)


def plain(outcomes: dict[str, CallEnd]) -> dict[str, CallEnd]:
    """Outcomes without their details."""
    return {job_id: outcome._replace(details=Details()) for job_id, outcome in outcomes.items()}


def added(caller: Caller, payloads: list[str]) -> list[Call]:
    calls = caller.calls(payloads, range(len(payloads)))
    caller.add(calls)
    return calls


def parent_keys(keys: QueueKeys) -> list[str]:
    kinds = (keys.job, keys.children, keys.children_values, keys.children_failures, keys.call_details, keys.kept_calls)
    return [key_of(parent) for parent in parent_ids(keys, NAME) for key_of in kinds]


def lapse(bench: WorkBench) -> None:
    """The lease of the caller lapses."""
    bench.client.zadd(bench.key("open_callers"), {NAME: 1}, xx=True)


def lapse_and_sweep(bench: WorkBench) -> None:
    lapse(bench)
    sweep(bench.handle)


def test_each_row_has_a_payload_and_a_call_of_its_own(bench: WorkBench, caller: Caller) -> None:
    # From a column of texts, which may have NULL.
    payloads: list[Any] = ["1", None]
    with pytest.raises(OptionError, match="row 8: expected `data` to be JSON, got NULL; filter such rows"):
        caller.calls(payloads, [7, 8])
    assert bench.counts() == {}
    calls = added(caller, ["1", "1", "2", "1"])
    assert len({call.job_id for call in calls}) == 4
    assert bench.counts() == {"wait": 4}


def test_two_attempts_share_their_calls(bench: WorkBench, new_caller: Callable[..., Caller]) -> None:
    one, other = new_caller(), new_caller()
    first = added(one, texts(20))
    done, failed = bench.claim(5), bench.claim(2)
    complete(bench, done, '{"ok":true}')
    fail(bench, failed, "no such address")
    ended = one.outcomes(first)
    completions = {job.id: CallEnd(b'{"ok":true}', None) for job in done.jobs}
    assert plain(ended) == completions | {job.id: CallEnd(None, "no such address") for job in failed.jobs}
    # The rows of a task that is repeated may come in another order.
    calls = other.calls([*reversed(texts(25))], range(25))
    count, outcomes = other.add(calls)
    assert count == (5 if not bench.twice else 0)
    assert outcomes == ended
    assert bench.counts() == {"wait": 18}
    claim = bench.claim(100)
    complete(bench, claim, "2")
    assert len(other.outcomes(calls)) == 25
    assert len(one.outcomes(first)) == 20


def test_kept_jobs_tell_their_details(bench: WorkBench, new_caller: Callable[..., Caller], details: bool) -> None:
    """BullMQ counts the attempt that completes a job, Bull does not; Bull 1 has no times."""
    caller = new_caller(attempts=2)
    calls = added(caller, texts(2))
    claim = bench.claim(2)
    bench.work(Outcomes(claim.token, retried=[Retried(job.id, "busy", "[]", 0, False) for job in claim.jobs]))
    assert (caller.outcomes(calls), caller.removed(calls)) == ({}, []), "pending until the last attempt"
    complete(bench, bench.claim(1), "7")
    fail(bench, bench.claim(1), "no")
    found = {outcome.value: outcome.details for outcome in caller.outcomes(calls).values()}
    if bench.bullmq and not details:
        assert found == {b"7": Details(), None: Details()}
    else:
        assert {value: one.attempts_made for value, one in found.items()} == {b"7": 2 if bench.bullmq else 1, None: 2}
        has_times = bench.handle.dialect.has("finish-times")
        assert all((one.duration_ms is not None) == has_times for one in found.values())
    assert bench.counts() == {}
    assert new_caller(attempts=2).add(calls) == (0, caller.outcomes(calls))


def test_a_job_that_ends_while_others_are_gathered_is_removed(
    bench: WorkBench, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, gather = added(caller, texts(2)), calling.gather_calls

    def end_one() -> None:
        claim = bench.claim(1)
        if claim.jobs:
            complete(bench, claim)

    def gather_calls(handle: QueueHandle, job_ids: Sequence[str], parents: Sequence[str]) -> None:
        gather(handle, job_ids, parents)
        end_one()

    monkeypatch.setattr(calling, "gather_calls", gather_calls)
    end_one()
    ended = caller.outcomes(calls)
    end_one()
    ended |= caller.outcomes([call for call in calls if call.job_id not in ended])
    assert len(ended) == 2
    assert bench.counts() == {}


def test_a_job_that_ended_and_was_removed_by_the_rule_of_another_one(
    bench: WorkBench, caller: Caller, details: bool
) -> None:
    """BullMQ has the result, without details; it is lost in Bull."""
    calls = added(caller, texts(1))
    complete(bench, bench.claim(1), "7")
    bench.queue.clean()
    if bench.bullmq:
        assert caller.outcomes(calls) == {calls[0].job_id: CallEnd(b"7", None)}
    assert caller.removed(calls) == ([] if bench.bullmq else calls)
    caller.close()
    lapse_and_sweep(bench)
    assert bench.client.exists(bench.key("open_callers")) == 0


def flown(caller: Caller, count: int, timeout_ms: int = DAY_MS) -> flight.Flight:
    """Added calls, which a task looks at."""
    flying = flight.Flight(caller, timeout_ms=timeout_ms)
    with flight.Lease(caller):
        flying.add(texts(count), range(count))
    return flying


def test_what_others_remove_is_not_added_again(
    bench: WorkBench, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each look looks for removed jobs, too.
    monkeypatch.setattr(flight, "_REMOVED_S", 0.0)
    flying = flown(caller, 20)
    for job_id in bench.ids("wait")[3:5]:
        bench.queue.remove(job_id)
    ended = [*wait_until(flying.look, "the removed ones to be ended")]
    assert (len(ended), bench.counts()) == (2, {"wait": 18})
    bench.queue.drain()
    ended += wait_until(flying.look, "the others to be ended")
    assert {one.outcome for one in ended} == {CallEnd(None, flight.REMOVED)}
    assert (len(ended), len(flying), bench.counts()) == (20, 0, {})


def test_calls_are_ended_with_a_reason(bench: WorkBench, new_caller: Callable[..., Caller]) -> None:
    caller = new_caller()
    calls = added(caller, texts(20))
    claim = bench.claim(3)
    started = {job.id for job in claim.jobs}
    done = bench.claim(1)
    complete(bench, done, "1")
    caller.end(calls, "timeout")
    outcomes = plain(caller.outcomes(calls))
    assert outcomes.pop(done.jobs[0].id) == CallEnd(b"1", None)
    assert set(outcomes.values()) == {CallEnd(None, "timeout")}
    assert bench.counts() == {"active": 3}
    caller.close()
    # The jobs that have started run to their end, which changes nothing.
    complete(bench, claim, "2")
    lapse_and_sweep(bench)
    assert bench.counts() == {}
    assert {plain(caller.outcomes(calls))[job_id] for job_id in started} == {CallEnd(None, "timeout")}
    # A repeated task gets the same.
    assert new_caller().add(calls) == (0, caller.outcomes(calls))


def test_jobs_in_other_states_are_ended(bench: WorkBench, new_caller: Callable[..., Caller]) -> None:
    for defaults in ({"delay": 3_600_000}, *([{"priority": 3}] if bench.bullmq else [])):
        caller = new_caller(next(iter(defaults)), **defaults)
        calls = added(caller, texts(5))
        assert "wait" not in bench.counts()
        caller.end(calls, "timeout")
        assert bench.counts() == {}
        assert len(caller.outcomes(calls)) == 5


def test_a_script_ends_few_calls(bench: WorkBench, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, end = [], calling.end_calls

    def end_calls(handle: QueueHandle, job_ids: Sequence[str], parents: Sequence[str], reason: str) -> int:
        sizes.append(len(job_ids))
        # As if each script had to search long lists.
        return end(handle, job_ids[:60], parents[:60], reason)

    monkeypatch.setattr(calling, "end_calls", end_calls)
    calls = added(caller, texts(250))
    caller.end(calls, "timeout")
    assert sizes == [100, 100, 100, 70, 10]
    assert len(caller.outcomes(calls)) == 250
    assert bench.counts() == {}


def test_what_waits_for_a_caller_without_a_lease_is_removed(bench: WorkBench, caller: Caller) -> None:
    calls = added(caller, texts(300))
    claim = bench.claim(2)
    complete(bench, bench.claim(1), "1")
    assert len(caller.outcomes(calls)) == 1
    assert sweep(bench.handle) == 0
    lapse(bench)
    caller.hold()
    assert sweep(bench.handle) == 0
    assert bench.counts() == {"active": 2, "wait": 297}
    lapse_and_sweep(bench)
    assert bench.counts() == {"active": 2}
    # Two jobs have a worker: the caller is looked at again, until they have ended.
    assert bench.client.zcard(bench.key("open_callers")) == 1
    complete(bench, claim, "2")
    lapse_and_sweep(bench)
    assert bench.client.exists(bench.key("open_callers")) == 0
    assert all(
        0 < bench.client.pttl(key) <= DAY_MS for key in parent_keys(bench.handle.keys) if bench.client.exists(key)
    )
    # The outcomes are kept for a task that is repeated, which adds the others again.
    assert len(caller.outcomes(calls)) == 3
    caller.add(calls)
    assert bench.counts() == {"wait": 297}


def test_an_id_that_is_no_utf8_does_not_keep_the_others(bench: WorkBench, caller: Caller) -> None:
    added(caller, texts(30))
    complete(bench, bench.claim(3), "1")
    keys = bench.handle.keys
    for parent in parent_ids(keys, NAME):
        for members in (keys.children(parent), keys.kept_calls(parent)):
            if bench.client.exists(members):
                bench.client.sadd(members, keys.base.encode() + b"\xff")
    lapse_and_sweep(bench)
    lapse_and_sweep(bench)
    assert bench.counts() == {}
    assert bench.client.exists(bench.key("open_callers")) == 0


def test_a_caller_leaves_nothing_for_ever(bench: WorkBench, caller: Caller) -> None:
    calls = added(caller, texts(100))
    keys, now_ms = parent_keys(bench.handle.keys), bench.client.time()[0] * 1000
    assert 0 < bench.client.zscore(bench.key("open_callers"), NAME) - now_ms <= CALL_LEASE_MS + 1000
    assert all(bench.client.pttl(key) > DAY_MS for key in keys)
    complete(bench, bench.claim(100), "1")
    assert all(bench.client.pttl(key) > DAY_MS for key in keys)
    assert len(caller.outcomes(calls)) == len(calls)
    for end in (caller.close, caller.hold):
        end()
        assert all(0 < bench.client.pttl(key) <= DAY_MS for key in keys)
        assert bench.client.exists(bench.key("open_callers")) == 0, "a lease is not renewed after its end"


def test_a_caller_that_ends_leaves_lease_and_results_to_another_one_of_its_name(
    bench: WorkBench, details: bool
) -> None:
    """As of an equal call in a micro-batch. `keep_ms` is 0."""
    one, other = (Caller(bench.handle, NAME, keep_ms=0, defaults={}, details=details) for _ in range(2))
    ended, pending = added(one, texts(10)), added(other, texts(30))
    complete(bench, bench.claim(10), "1")
    assert len(one.outcomes(ended)) == 10
    one.close()
    assert sweep(bench.handle) == 0
    assert bench.counts() == {"wait": 20}
    complete(bench, bench.claim(20), "2")
    one.close()
    assert Counter(outcome.value for outcome in other.outcomes(pending).values()) == {b"1": 10, b"2": 20}
    other.close()
    assert bench.client.exists(bench.key("open_callers")) == 0
    kept = [key for key in parent_keys(bench.handle.keys) if bench.client.exists(key)]
    assert kept
    assert all(0 < bench.client.pttl(key) <= CALL_LEASE_MS for key in kept)


def test_what_was_removed_while_the_lease_had_lapsed_is_added_again(
    bench: WorkBench, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a task does whose executor was frozen, also when the sweep or another attempt has renewed the lease."""
    monkeypatch.setattr(flight, "_REMOVED_S", 0.0)
    flying = flown(caller, 250)
    done, started = bench.claim(1), bench.claim(1)
    complete(bench, done, "1")
    with monkeypatch.context() as short:
        short.setattr(calling, "CALL_LEASE_MS", 0)
        lapse_and_sweep(bench)
        assert bench.counts() == {"active": 1}
        ended = flying.look()
    ended += flying.look()
    assert bench.counts() == {"active": 1, "wait": 248}
    complete(bench, started, "2")
    complete(bench, bench.claim(248), "3")
    while len(flying):
        ended += flying.look()
    assert Counter(one.outcome._replace(details=Details()) for one in ended) == {
        CallEnd(b"1", None): 1,
        CallEnd(b"2", None): 1,
        CallEnd(b"3", None): 248,
    }


def test_a_queue_without_workers_is_said(
    bench: WorkBench, caller: Caller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(flight, "_IDLE_S", 0.0)
    flying = flown(caller, 3)
    flying.look()
    flying.look()
    assert caplog.messages.count("0 workers are connected to queue q: 3 calls wait for one") == 1


def test_a_call_that_has_waited_too_long_is_ended(bench: WorkBench, caller: Caller) -> None:
    flying = flown(caller, 300, timeout_ms=1)
    assert max(deadline for calls in flying._calls for _, deadline in calls.values()) <= monotonic_s() + 0.001
    ended = wait_until(flying.look, "the calls to be ended")
    assert len(ended) == 300
    reason = "timeout: the job has not ended within 1 ms; 0 workers are connected to queue q"
    assert {one.outcome for one in ended} == {CallEnd(None, reason)}
    assert len(flying) == 0
    assert bench.counts() == {}


def test_a_queue_that_accepts_no_jobs_refuses_new_calls_only(bench: WorkBench, caller: Caller) -> None:
    calls = added(caller, texts(2))
    bench.queue.close_intake()
    assert caller.add(calls) == (0, {})
    with pytest.raises(IntakeClosed):
        caller.add(caller.calls(["7"], [2]))
    assert bench.counts() == {"wait": 2}


def test_a_job_whose_parents_have_expired_is_taken_over(bench: WorkBench, caller: Caller) -> None:
    calls = added(caller, texts(5))
    bench.client.delete(*parent_keys(bench.handle.keys))
    assert sorted(caller.removed(calls)) == sorted(calls)
    assert caller.add(calls) == (0, {})
    assert bench.counts() == {"wait": 5}
    complete(bench, bench.claim(5), "1")
    assert len(caller.outcomes(calls)) == 5
    assert (bench.counts(), bench.claim(10).jobs) == ({}, []), "parents never start"


def test_a_look_reads_the_calls_that_have_ended_and_few_others(bench: WorkBench, caller: Caller, details: bool) -> None:
    if details or not bench.bullmq:
        pytest.skip("scripts gather the outcomes of kept jobs")
    flying = flown(caller, 1_000)
    with script_work(bench.client, commands=True, prefix=bench.handle.keys.base) as idle:
        assert flying.look() == []
    for _ in range(3):
        complete(bench, bench.claim(100))
    with script_work(bench.client, commands=True, prefix=bench.handle.keys.base) as busy:
        assert len(flying.look()) == 300
    assert sum(work.elements for work in idle) < 400
    assert sum(work.elements for work in busy) < 300 * 2


def test_calls_that_end_long_before_older_ones_are_found(bench: WorkBench, caller: Caller) -> None:
    flying = flown(caller, 400)
    slow = [bench.claim(100) for _ in range(3)]
    complete(bench, bench.claim(100), "2")
    ended = found_by(flying, 100)
    assert {one.outcome.value for one in ended} == {b"2"}
    for claim in slow:
        complete(bench, claim, "1")
    assert {one.outcome.value for one in found_by(flying, 300)} == {b"1"}


def test_calls_are_found_while_those_of_another_attempt_are_pending(
    bench: WorkBench, new_caller: Callable[..., Caller]
) -> None:
    """The parents have as many pending calls then as if none had ended."""
    mine, other = flown(new_caller(), 200), flown(new_caller(), 600)
    for _ in range(2):
        complete(bench, bench.claim(100), "1")
    assert len(found_by(mine, 200)) == 200
    assert len(mine) == 0
    assert len(found_by(other, 200)) == 200
    assert bench.counts() == {"wait": 400}


def found_by(flying: flight.Flight, count: int) -> list[flight.EndedCall]:
    """The calls that have ended, when looks have found `count` of them."""
    found: list[flight.EndedCall] = []

    def look() -> bool:
        found.extend(flying.look())
        return len(found) >= count

    wait_until(look, f"looks to find {count} calls that have ended")
    return found
