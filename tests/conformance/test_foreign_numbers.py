"""Numbers that other programs wrote: as texts, fractions, true, null, infinite; and whatever else JSON can hold.

A worker takes a job's options for what Node's worker takes them for. A slot survives all that is in Redis.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from redis import Redis

from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.walk import Slice
from spark_bull.run.job.job_runner import Result
from spark_bull.run.job.outcome_policy import OutcomePolicy
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.testing import process_all
from spark_bull.spark.inspect.source import OpenSlice, batch_reader
from spark_bull.spark.schemas import SCHEMAS
from tests.support.jobs import HOUR
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.work_bench import Filled, options_of

JOBS = 30
#: Jobs of one run, and of `make soak`.
RUNS, SOAK_RUNS = 6, 60
#: Beyond this many hours a delay has no meaning: Node's jobs are due in thousands of years, ours in 2039.
FAR = 100_000


def examples(runs: int) -> settings:
    """As many random examples, without a time limit; what fails is not made smaller, as that takes as many again."""
    return settings(
        max_examples=runs,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
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


def write(bench: Filled, jobs: list[tuple[dict[str, Any], str, str]]) -> None:
    """Fills the queue with waiting jobs that have run before; the first one is claimed first."""
    attempts = bench.handle.dialect.claim_fields["attempts_made"]
    for number, (opts, attempts_made, _) in enumerate(jobs, 1):
        given = {"opts": as_json(opts), attempts: attempts_made, "stacktrace": '["a","b"]', "delay": 0, "priority": 0}
        bench.put("wait", [str(number)], **given)


def found(bench: Filled, count: int, start: int) -> list[tuple[str, Any, Any]]:
    """What became of the jobs: the state, in how many hours a delayed one is due, and the number of traces."""
    seen = []
    for job_id in map(str, range(1, count + 1)):
        job = bench.queue.job(job_id)
        state, hours = ("gone" if job is None else str(job.state)), None
        if state == "delayed":
            due = bench.client.zscore(bench.key("delayed"), job_id) / 4096
            hours = round(min(FAR, (due - start) / HOUR))
            # A delay below 0 is over at once, as we see it.
            state, hours = ("wait", None) if hours <= 0 else (state, hours)
        traces = json.loads(bench.field(job_id, "stacktrace") or "[]")
        seen.append((state, hours, len(traces)))
    return seen


def settle_by_us(bench: Filled, jobs: list[tuple[dict[str, Any], str, str]]) -> None:
    claim = bench.claim(len(jobs))
    assert [int(job.id) for job in claim.jobs] == [*range(1, len(jobs) + 1)]
    for job in claim.jobs:
        outcomes = Outcomes(claim.token)
        error = ValueError("bad") if jobs[int(job.id) - 1][2] == "fail" else None
        result = Result(RunningJob(job, bench.handle), None, error)
        OutcomePolicy().record(outcomes, bench.handle.dialect, result, bench.handle.connection.now_ms())
        bench.work(outcomes)


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
            bench = Filled(queue, client)
            write(bench, jobs)
            if side == "left":
                settle_by_node(node, jobs)
            else:
                settle_by_us(bench, jobs)
            seen[side] = found(bench, count, start)
    differ, stuck = [], 0
    for job, left, ours in zip(jobs, *seen.values(), strict=True):
        # A script of Node fails with the value, some after the job has left `active`, or it adds a text to a time.
        is_stuck = left[0] in ("active", "None") or left[1] == FAR
        stuck += is_stuck
        if ours[0] == "active" or (not is_stuck and left != ours):
            differ.append(f"{as_json(job[0])} {job[1:]}: {left}, ours {ours}")
    return differ, stuck


@each_peer_of("bull-4", "bullmq")
@pytest.mark.parametrize("runs", [RUNS, pytest.param(SOAK_RUNS, marks=pytest.mark.soak)])
def test_options_mean_what_they_mean_to_nodes_worker(
    node: Callable[..., NodePeer], client: Redis, redis_url: str, prefix: str, peer: Peer, runs: int
) -> None:
    left = node(peer.alias, prefix=f"{prefix}left")
    compared_jobs: list[tuple[list[str], int]] = []

    @seed(1)
    @examples(runs)
    @given(st.lists(jobs_of[peer.dialect], min_size=JOBS, max_size=JOBS))
    def run(jobs: list[Any]) -> None:
        compared_jobs.append(compare(peer, left, client, redis_url, prefix, jobs))

    run()
    differ = [one for differ, _ in compared_jobs for one in differ]
    assert not differ, "\n".join(differ)
    assert sum(stuck for _, stuck in compared_jobs) < len(compared_jobs) * JOBS / 3


# whatever JSON can hold

HUGE = "9" * 5_000
NAMES = ["attempts", "backoff", "type", "delay", "jitter", "removeOnComplete", "removeOnFail", "count", "age", "limit"]
NAMES += ["stackTraceLimit", "kl", "de", "debounce", "id", "lifo", "priority", "repeat", "prevMillis"]
#: Of a job scheduler; its interval is at least a minute, as each job adds the next one.
REPEAT = ["pattern", "cron", "tz", "endDate", "startDate", "offset", "limit", "count", "jobId", "utc"]
FIELDS = ["atm", "attemptsMade", "ats", "attempts", "delay", "priority", "processedOn", "timestamp", "finishedOn"]
FIELDS += ["stalledCounter", "progress", "stacktrace", "returnvalue", "deid", "rjk", "parentKey", "parent", "expireAt"]
META = ["max", "duration", "concurrency", "opts.maxLenEvents", "ic", "limit", "offset", "startDate", "endDate"]
leaves = st.sampled_from(
    [
        *(None, True, False, 0, -1, 1, 2.5, 1e16, 1e300, float("inf"), 10**400, "", "x", "3", "NaN", "Infinity", HUGE),
        *("\x00", "é" * 9, "UTC+25", "utc", "* * * * *", f"{HUGE} * * * *", "0001-01-01T00:00", "fixed", "exponential"),
    ]
)
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
)
texts = st.one_of(leaves.filter(lambda leaf: isinstance(leaf, str)), anything.map(as_json))
objects = partial(st.dictionaries, values=anything, max_size=5)
hashes = st.tuples(
    objects(st.sampled_from(NAMES)),
    objects(st.sampled_from(REPEAT)),
    st.dictionaries(st.sampled_from(FIELDS), texts, max_size=5),
    anything,
)
queues = st.tuples(
    st.lists(hashes, min_size=12, max_size=12), st.dictionaries(st.sampled_from(META), texts, max_size=4)
)
SCORES = [0, 1.7e12, 1e15, 1e300, float("inf"), -5]


def fill(client: Redis, queue: BullQueue, jobs: list[Any], meta: dict[str, str]) -> list[str]:
    """Jobs in all states from which a worker takes them, half of them of job schedulers; returns their ids."""
    keys, ids = queue.handle.keys, []
    if queue.protocol == "bullmq" and meta:
        client.hset(keys["meta"], mapping=meta)
    for number, (opts, repeat, fields, data) in enumerate(jobs):
        scheduler, job_id = f"s{number}" + ":x" * (number % 7), str(number)
        if number % 2 and queue.protocol != "bull-1":
            job_id = f"repeat:{scheduler}:1700000000000"
            opts, fields = {**opts, "repeat": {**repeat, "every": 60_000 * (number % 3)}}, {**fields, "rjk": scheduler}
            member = scheduler if queue.protocol == "bullmq" else f"task:{scheduler}::::* * * * *"
            client.zadd(
                keys["repeats"], {member: SCORES[number % len(SCORES)] if number % 5 == 0 else 1_700_000_000_000}
            )
            client.hset(keys.scheduler(scheduler), mapping={"name": "task", **meta})
        whole = {"timestamp": "1", "name": "task", **fields, "opts": as_json(opts), "data": as_json(data)}
        client.hset(keys.job(job_id), mapping=whole)
        ids.append(job_id)
        if number % 4 < 2 or (number % 4 == 3 and queue.protocol != "bullmq"):
            client.lpush(keys["wait"], job_id)
        else:
            client.zadd(keys["delayed" if number % 4 == 2 else "prioritized"], {job_id: SCORES[number % len(SCORES)]})
    return ids


def use(queue: BullQueue, ids: list[str]) -> None:
    """Processes the queue, and reads all of it."""

    def process(job: RunningJob) -> None:
        job.log(repr((job.data, job.opts)))
        if job.attempts_made < 2:
            raise ValueError("bad")

    process_all(queue, process, most_attempts=2_000)
    counts = queue.counts()
    assert counts["active"] == 0
    for state in counts:
        queue.page(state)
    for job_id in ids:
        queue.job(job_id)
    queue.stats()
    if queue.protocol != "bull-1":
        queue.schedulers()
        queue.counts_by("priority")
    if queue.protocol == "bullmq":
        queue.limits()


@pytest.mark.parametrize("runs", [5, pytest.param(300, marks=pytest.mark.soak)])
@pytest.mark.parametrize("dialect", ["bull-1", "bull", "bullmq"])
def test_a_slot_survives_any_option_field_payload_or_scheduler(
    client: Redis, redis_url: str, prefix: str, dialect: str, runs: int
) -> None:
    @seed(2)
    @examples(runs)
    @given(queues)
    def run(filled: Any) -> None:
        client.delete(*client.keys(f"{prefix}:*") or ["none"])
        with BullQueue("q", url=redis_url, prefix=prefix, protocol=dialect) as queue:
            use(queue, fill(client, queue, *filled))

    run()


@pytest.mark.parametrize("queue", ["bull", "bullmq"], indirect=True)
def test_a_view_has_null_for_a_time_or_number_that_its_column_cannot_hold(queue: BullQueue, client: Redis) -> None:
    queue.add({})
    client.hset(queue.handle.keys.job("1"), "timestamp", -(10**15))
    client.zadd(queue.handle.keys["repeats"], {f"a:b:{10**15}:UTC:* * * * *": float("inf")})
    seen = {}
    for view in ("jobs", "queues", "schedulers"):
        batches = batch_reader({**options_of(queue), "view": view}, SCHEMAS[view]).read(OpenSlice(Slice()))
        (seen[view],) = [row for batch in batches for row in batch.to_pylist()]
    assert seen["jobs"]["timestamp"] is None
    assert (seen["schedulers"]["next"], seen["schedulers"]["endDate"]) == (None, None)
