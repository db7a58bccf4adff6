"""The same jobs, added by the Node package and by us, leave the same keys and publish the same messages.

Every key is compared, to the ms: type, members, order, scores, hash fields, whether it expires, stream entries. So are
the published messages. `tests/support/steps.py` and `two_sides.py` know the intended differences.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from tests.conformance.pair import Pair
from tests.support.dump import difference, dump, normalise_messages
from tests.support.jobs import new_job_arguments, random_jobs
from tests.support.node import Peer, each_peer_of
from tests.support.steps import Steps, step
from tests.support.traffic import published
from tests.support.writes import register_all

each_peer = each_peer_of("bull-1", "bull", "bullmq")


@pytest.fixture
def steps(steps: Steps) -> Steps:
    ours = steps.ours["main"]
    steps.is_exact = True
    # The version is found in the queue.
    ours.handle = replace(ours.handle, bullmq_version="auto")
    # So that a list of jobs is added in several chunks.
    ours._options.chunk_size = 40
    return steps


@each_peer
@pytest.mark.parametrize("verb", ["add", "stage"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_a_random_list_of_jobs_is_added_as_by_node(steps: Steps, peer: Peer, seed: int, verb: str) -> None:
    added = step(verb, jobs=random_jobs(Random(seed), peer.dialect, 150, custom_ids=peer.custom_ids))
    # As in a queue that no Queue object of BullMQ has opened.
    unsigned = step("redis", command=["HDEL", "main:meta", "version", "opts.maxLenEvents"])
    for opened in ([], [unsigned]):
        steps.live([*opened, added])


#: Only the first one of two calls changes the state.
PAUSES = ("resume", "resume", "pause", "pause", "resume", "resume")


@each_peer
def test_a_repeated_pause_or_resume_is_published_as_by_node(steps: Steps) -> None:
    for jobs in (0, 3):
        added = step("add", jobs=[{"name": "one", "data": {}, "opts": {}}] * jobs)
        steps.live([added, *(step(verb) for verb in PAUSES)])


@each_peer_of("bull-1.1.3")
def test_new_jobs_and_repeated_pauses_are_published_as_by_bull_1(pair: Pair, peer: Peer) -> None:
    """Outside the prefix, by the name of the queue. Bull 1.0 does not subscribe."""
    jobs, (left, right) = random_jobs(Random(5), "bull-1", 40), pair.queues.values()
    with published(pair.client, pair.prefix, left.name) as theirs:
        pair.node.call("add", queue=left.name, jobs=jobs)
        for verb in PAUSES:
            pair.node.call(verb, queue=left.name)
        # It publishes without waiting for the reply, on the connection that this call uses.
        pair.node.call("counts", queue=left.name)
    with published(pair.client, pair.prefix, right.name) as ours:
        new = [NewJob(**new_job_arguments(job)) for job in jobs]
        right.add_many(new[:20])
        register_all(right.handle, "w", [new[20:]])
        roll_forward(right.handle, "w")
        for verb in PAUSES:
            getattr(right, verb)()
    said = [
        normalise_messages(heard, pair.prefix, dump(pair.client, pair.prefix, queue.name), pair.window)
        for heard, queue in ((theirs, left), (ours, right))
    ]
    assert "waiting@<queue>" in dict(said[0])
    assert difference(*said) == []


@each_peer_of("bullmq")
def test_jobs_are_added_as_by_node_to_a_queue_with_a_concurrency_limit(steps: Steps, peer: Peer) -> None:
    for active in (0, 1, 2):
        limited = step("call", method="setGlobalConcurrency", args=[2])
        busy = [step("redis", command=["LPUSH", "main:active", f"busy-{number}"]) for number in range(active)]
        steps.live([limited, *busy, step("add", jobs=random_jobs(Random(17), peer.dialect, 40))])


@each_peer_of("bullmq")
def test_events_are_trimmed_as_by_node(steps: Steps) -> None:
    for kept in (0, 150):
        jobs = [{"name": "one", "data": {}, "opts": {}}] * 400
        steps.live([step("add", jobs=jobs), step("call", method="trimEvents", args=[kept])])


IDS_WITH_COLONS = ["user:42", "a:b:c", "0:1", "0", "repeat:d41d8cd98f00b204e9800998ecf8427e:1700000000000", "user:42"]


@each_peer
def test_a_job_of_each_kind_is_added_alone_as_by_node(steps: Steps, peer: Peer) -> None:
    jobs = random_jobs(Random(5), peer.dialect, 40, custom_ids=peer.custom_ids)
    if peer.custom_ids and peer.dialect != "bullmq":
        jobs += [{"name": "colons", "data": {}, "opts": {"jobId": job_id}} for job_id in IDS_WITH_COLONS]
    # At last to a queue in use, with ids that jobs have already.
    steps.live([*(step("add", jobs=[job]) for job in jobs), step("add", jobs=jobs)])


@pytest.mark.parametrize("queue", ["bull-1", "bull"], indirect=True)
def test_a_number_that_is_used_as_a_custom_id_is_skipped(queue: BullQueue) -> None:
    """An intended difference: Bull 3 and 4 overwrite the other job, Bull 1 drops the new one; we keep both."""
    added = queue.add_many(NewJob({"n": n}, job_id="4" if n == 1 else None) for n in range(5))
    assert (added.added, added.ids) == (5, ["1", "4", "3", "6", "5"])
    assert [job.id for job in queue.page("wait")] == added.ids


@each_peer
def test_any_list_of_jobs_is_added_as_by_node(steps: Steps, peer: Peer) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.randoms(use_true_random=False), st.integers(1, 12), st.integers(1, 2))
    def alike(random: Random, count: int, times: int) -> None:
        jobs = random_jobs(random, peer.dialect, count, custom_ids=peer.custom_ids, big=False)
        steps.live([step("add", jobs=jobs)] * times)

    alike()
