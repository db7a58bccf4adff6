"""Numbers that other programs wrote: as texts, fractions, true, null, infinite; and whatever else JSON can hold.

A worker takes a job's options for what Node's worker takes them for. A slot survives all that is in Redis.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from redis import Redis

from spark_bull.model.outcomes import Outcomes
from spark_bull.queue.bull_queue import BullQueue
from spark_bull.queue.core.claim_settings import ClaimSettings
from spark_bull.queue.process import claim as claims
from spark_bull.worker.job.job_runner import Result
from spark_bull.worker.job.outcome_policy import OutcomePolicy
from spark_bull.worker.job.running_job import RunningJob
from tests.support.jobs import HOUR
from tests.support.node_peer import NodePeer
from tests.support.peers import PEERS, Peer

JOBS = 30
#: Jobs of one run, and of `make soak`.
RUNS, SOAK_RUNS = 6, 400
#: Beyond this many hours a delay has no meaning: Node's jobs are due in thousands of years, ours in 2039.
FAR = 100_000

compared = [peer for peer in PEERS if peer.alias in ("bull-4.16.5", "bullmq-5.81.5", "bullmq-6.7.0")]
each_run = pytest.mark.parametrize(
    ("peer", "runs"),
    [
        *(pytest.param(peer, RUNS, marks=[pytest.mark.soak] if "-5" in peer.alias else []) for peer in compared),
        *(pytest.param(peer, SOAK_RUNS, marks=pytest.mark.soak) for peer in compared),
    ],
    ids=str,
)


def spelled(*numbers: float) -> st.SearchStrategy[Any]:
    """The numbers as numbers, as texts, and in lists; and values that are no numbers."""
    exact = st.sampled_from(numbers)
    texts = st.builds(
        lambda number, form: form.format(number, int(number)),
        exact,
        st.sampled_from(["{}", " {} ", "+{}", "{}.0", "\t{}\n", "{1:#x}", "0{}", "{} x", "{}_0", "{},5"]),
    )
    others = st.sampled_from([None, True, False, "", " ", "x", "Infinity", "-Infinity", "NaN", float("inf"), [], {}])
    return st.one_of(exact, texts, others, exact.map(lambda number: [number]), exact.map(lambda number: [str(number)]))


attempts = spelled(0, 1, 2, 3, 2.5, 0.5, -1, 1e9, 1e16, 1e20)
delays = spelled(0, 2 * HOUR, 5 * HOUR, 1.5 * HOUR, -1, -2 * HOUR, 1e15)
kinds = st.sampled_from(["fixed", "exponential"])
backoffs = st.one_of(
    st.sampled_from([None, False, "", 0, 2 * HOUR, 3.5 * HOUR]),
    st.builds(lambda kind, delay: {"type": kind, "delay": delay}, kinds, delays),
    st.builds(lambda kind: {"type": kind}, kinds),
)
#: Such as keep all jobs of a run, or none.
keeps = st.sampled_from(
    [True, False, "", "0", "false", "100", 0, -1, 1000, {}, [], {"age": 9e9}, {"age": "9000"}, {"count": 1000}]
)
limits = spelled(0, 1, 2, -1, 1.7, 0.5, 1e30)


def sparse(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


options = sparse(
    attempts=attempts,
    backoff=backoffs,
    removeOnComplete=keeps,
    removeOnFail=keeps,
    stackTraceLimit=limits,
    lifo=st.sampled_from([True, False, None, 0, 1, "", "false"]),
)
#: A script of BullMQ counts attempts with HINCRBY, which refuses other texts.
made = {
    "bull": st.sampled_from(["0", "0", "1", "2", "1.0", "2 times"]),
    "bullmq": st.sampled_from(["0", "0", "1", "2"]),
}


jobs_of = {
    name: st.tuples(options, counts, st.sampled_from(["fail", "fail", "complete"])) for name, counts in made.items()
}


def as_json(value: Any) -> str:
    return re.sub(r"(?<![\"-])Infinity", "1e999", json.dumps(value))


def write(client: Redis, queue: BullQueue, jobs: list[tuple[dict[str, Any], str, str]]) -> None:
    """Fills the queue with waiting jobs that have run before; the first one is claimed first."""
    keys, fields = queue.handle.keys, queue.handle.dialect.claim_fields
    for number, (opts, attempts_made, _) in enumerate(jobs, 1):
        values = {"name": "task", "data": "{}", "timestamp": 1_700_000_000_000, "delay": 0, "priority": 0}
        client.hset(
            keys.job(str(number)), mapping={**values, "opts": as_json(opts), fields["attempts_made"]: attempts_made}
        )
        client.hset(keys.job(str(number)), "stacktrace", '["a","b"]')
        client.lpush(keys["wait"], number)


def found(client: Redis, queue: BullQueue, count: int, start: int) -> list[tuple[str, Any, Any]]:
    """What became of the jobs: the state, in how many hours a delayed one is due, and the number of traces."""
    seen = []
    for job_id in map(str, range(1, count + 1)):
        job = queue.job(job_id)
        state, hours = ("gone" if job is None else str(job.state)), None
        if state == "delayed":
            hours = round((client.zscore(queue.handle.keys["delayed"], job_id) / 4096 - start) / HOUR)
            hours = min(FAR, hours)
            # A delay below 0 is over at once, as we see it.
            state, hours = ("wait", None) if hours <= 0 else (state, hours)
        traces = json.loads(client.hget(queue.handle.keys.job(job_id), "stacktrace") or "[]")
        seen.append((state, hours, len(traces)))
    return seen


def settle_by_us(queue: BullQueue, jobs: list[tuple[dict[str, Any], str, str]]) -> None:
    handle, policy, token = queue.handle, OutcomePolicy(), uuid4().hex
    claim_settings = ClaimSettings("slot", lock_ms=HOUR)
    claim = claims.work(handle, claim_settings, None, len(jobs), token=token)
    assert [int(job.id) for job in claim.jobs] == [*range(1, len(jobs) + 1)]
    for job in claim.jobs:
        outcomes = Outcomes(token)
        error = ValueError("bad") if jobs[int(job.id) - 1][2] == "fail" else None
        policy.record(
            outcomes, handle.dialect, Result(RunningJob(job, handle), None, error), handle.connection.now_ms()
        )
        claims.work(handle, claim_settings, outcomes, 0, token=token)


def settle_by_node(peer: NodePeer, jobs: list[tuple[dict[str, Any], str, str]]) -> None:
    held = peer.call("claim", queue="q", count=len(jobs), token="t")
    for one in held:
        kind = jobs[int(one["id"]) - 1][2]
        outcome = {"jobId": one["id"], "token": one["token"], "does": kind, "value": "bad"}
        peer.call("settle", queue="q", outcomes=[outcome], count=0, token="t")


def compare(peer: Peer, node: NodePeer, client: Redis, url: str, prefix: str, jobs: list[Any]) -> tuple[list[str], int]:
    start, count, seen = client.time()[0] * 1000, len(jobs), {}
    for side in ("left", "ours"):
        with BullQueue("q", url=url, prefix=f"{prefix}{side}", protocol=peer.dialect) as queue:
            client.delete(*client.keys(f"{prefix}{side}:*") or ["none"])
            write(client, queue, jobs)
            if side == "left":
                settle_by_node(node, jobs)
            else:
                settle_by_us(queue, jobs)
            seen[side] = found(client, queue, count, start)
    differ, stuck = [], 0
    for job, left, ours in zip(jobs, *seen.values(), strict=True):
        # A script of Node fails with the value, or it adds a text to a time: the job is stuck there.
        is_stuck = left[0] == "active" or left[1] == FAR
        stuck += is_stuck
        if ours[0] == "active" or (not is_stuck and left != ours):
            differ.append(f"{as_json(job[0])} {job[1:]}: {left}, ours {ours}")
    return differ, stuck


@each_run
def test_options_mean_what_they_mean_to_nodes_worker(
    node: Callable[..., NodePeer], client: Redis, redis_url: str, prefix: str, peer: Peer, runs: int
) -> None:
    left = node(peer.alias, prefix=f"{prefix}left")
    compared_jobs: list[tuple[list[str], int]] = []

    @seed(1)
    @settings(
        max_examples=runs,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(st.lists(jobs_of[peer.dialect], min_size=JOBS, max_size=JOBS))
    def run(jobs: list[Any]) -> None:
        compared_jobs.append(compare(peer, left, client, redis_url, prefix, jobs))

    run()
    differ = [one for differ, _ in compared_jobs for one in differ]
    assert not differ, "\n".join(differ)
    assert sum(stuck for _, stuck in compared_jobs) < len(compared_jobs) * JOBS / 3
