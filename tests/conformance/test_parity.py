"""The same jobs, added by the Node package and by us, leave the same keys and publish the same messages.

Every key of both queues is compared: type, members, order, scores, hash fields, whether it expires, stream entries. So
are the published messages. Left is Node, right is ours. KNOWN lists the intended differences with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from tests.support.dump import Dump, Window, difference, dump, normalise, normalise_messages
from tests.support.jobs import Job, job_lists, new_job_arguments, random_jobs
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.traffic import Message, published
from tests.support.writes import register_all

SHOWN = 25

each_peer = each_peer_of("bull-1", "bull", "bullmq")
each_bullmq = each_peer_of("bullmq")


#: Intended differences: the start of the package name, the start of the sentence, and the reason.
KNOWN = [("bullmq-", "meta.version: only left has", "the version of a Node Queue object, which only Node writes")]
#: Messages that we publish and this package does not, but later versions of the same dialect do, and the reason.
SILENT = [
    ("bull-1.0.0", "waiting@<queue>", "Bull 1.1 and 2 publish new jobs to other processes, 1.0 does not subscribe"),
    ("bull-3.29.3", "duplicated@<token>", "Bull 4 publishes duplicates, 3 does not subscribe"),
]


@dataclass
class TwoQueues:
    """Two queues, one for Node and one for us, and the messages published for each."""

    peer: Peer
    node: NodePeer
    client: Redis
    url: str
    prefix: str
    window: Window = field(default_factory=Window)
    messages: dict[str, list[Message]] = field(default_factory=lambda: {"left": [], "right": []})
    numbers: Iterator[int] = field(default_factory=count)
    suffix: str = ""

    def renew(self) -> None:
        """Continues with two new, empty queues."""
        self.suffix = f"-{next(self.numbers)}"
        self.messages = {"left": [], "right": []}
        self.window = Window()

    def queue(self, side: str) -> str:
        # Bull 1 publishes outside the prefix, so the name of the queue must be unique.
        return f"{side}-{self.prefix}{self.suffix}"

    def add(self, jobs: list[Job], *, staged: bool = False) -> None:
        with self._listening("left") as queue:
            self.node.call("add", queue=queue, jobs=jobs)
        with self._listening("right") as queue, self.ours(queue) as ours:
            new_jobs = [NewJob(**new_job_arguments(job)) for job in jobs]
            if staged:
                add_staged(ours, new_jobs)
            else:
                ours.add_many(new_jobs)

    def both(self, verb: str) -> None:
        """Calls a verb without arguments: Node's on one queue, ours on the other."""
        with self._listening("left") as queue:
            self.node.call(verb, queue=queue)
        with self._listening("right") as queue, self.ours(queue) as ours:
            getattr(ours, verb)()

    def call_both(self, cmd: str, **arguments: Any) -> None:
        """Runs a command of Node on both queues."""
        for side in ("left", "right"):
            self.node.call(cmd, queue=self.queue(side), **arguments)

    def assert_alike(self) -> None:
        if found := self.differences():
            more = f"\n… and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            pytest.fail("\n".join(found[:SHOWN]) + more, pytrace=False)

    def differences(self) -> list[str]:
        """The differences that are not known."""
        left, right = (self._dump(side) for side in ("left", "right"))
        found = difference(normalise(left, self.window), normalise(right, self.window))
        said = [self._messages("left", left), self._messages("right", right)]
        found += [f"published{sentence}" for sentence in difference(*said)]
        return [sentence for sentence in found if not self._known(sentence)]

    def ours(self, queue: str) -> closing[BullQueue]:
        return closing(BullQueue(queue, url=self.url, prefix=self.prefix, protocol=self.peer.dialect, chunk_size=40))

    def _dump(self, side: str) -> Dump:
        return dump(self.client, self.prefix, self.queue(side))

    @contextmanager
    def _listening(self, side: str) -> Iterator[str]:
        with published(self.client, self.prefix, self.queue(side)) as heard:
            yield self.queue(side)
            # Bull 1 publishes without waiting for the reply, on the connection that this call uses.
            self.node.call("counts", queue=self.queue("left"))
        self.messages[side] += heard

    def _messages(self, side: str, raw: Dump) -> list[tuple[str, Any]]:
        normal = normalise_messages(self.messages[side], self.prefix, raw, self.window)
        unheard = {channel for package, channel, _ in SILENT if package == self.peer.alias}
        return [(channel, message) for channel, message in normal if side == "left" or channel not in unheard]

    def _known(self, sentence: str) -> bool:
        return any(self.peer.alias.startswith(package) and sentence.startswith(start) for package, start, _ in KNOWN)


def add_staged(queue: BullQueue, jobs: list[NewJob]) -> None:
    """Adds jobs as an exactly-once write of Spark does: two tasks stage chunks, the driver commits them."""
    handle, half = queue.handle, len(jobs) // 2
    assert register_all(handle, "w", [jobs[:half], jobs[half:]], chunk_size=40)
    record = roll_forward(handle, "w")
    assert record.added + record.duplicates == len(jobs)


@pytest.fixture
def pair(peer: Peer, node: Callable[..., NodePeer], client: Redis, redis_url: str, prefix: str) -> TwoQueues:
    return TwoQueues(peer, node(peer.alias, prefix=prefix), client, redis_url, prefix)


@each_peer
@pytest.mark.parametrize("staged", [False, True], ids=["added", "staged"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_a_random_list_of_jobs_is_added_as_by_node(pair: TwoQueues, seed: int, staged: bool) -> None:
    jobs = random_jobs(Random(seed), pair.peer.dialect, 150, custom_ids=pair.peer.custom_ids)
    pair.add(jobs, staged=staged)
    pair.assert_alike()


@each_peer
def test_a_repeated_pause_or_resume_is_published_as_by_node(pair: TwoQueues) -> None:
    for jobs in (0, 3):
        pair.call_both("counts")
        pair.add([{"name": "one", "data": {}, "opts": {}}] * jobs)
        for verb in ("resume", "resume", "pause", "pause", "resume", "resume"):
            pair.both(verb)
            pair.assert_alike()
        pair.renew()


@each_bullmq
def test_jobs_are_added_as_by_node_to_a_queue_with_a_concurrency_limit(pair: TwoQueues) -> None:
    for active in (0, 1, 2):
        pair.call_both("invoke", method="setGlobalConcurrency", args=[2])
        for side in ("left", "right"):
            for number in range(active):
                pair.client.lpush(f"{pair.prefix}:{pair.queue(side)}:active", f"busy-{number}")
        pair.add(random_jobs(Random(17), pair.peer.dialect, 40))
        pair.assert_alike()
        pair.renew()


IDS_WITH_COLONS = ["user:42", "a:b:c", "0:1", "0", "repeat:d41d8cd98f00b204e9800998ecf8427e:1700000000000", "user:42"]


@each_peer
def test_a_job_of_each_kind_is_added_alone_as_by_node(pair: TwoQueues) -> None:
    jobs = random_jobs(Random(5), pair.peer.dialect, 40, custom_ids=pair.peer.custom_ids)
    if pair.peer.custom_ids and pair.peer.dialect != "bullmq":
        jobs += [{"name": "colons", "data": {}, "opts": {"jobId": job_id}} for job_id in IDS_WITH_COLONS]
    for job in jobs:
        pair.add([job])
    # To a queue in use, with ids that jobs have already.
    pair.add(jobs)
    pair.assert_alike()


@pytest.mark.parametrize("dialect", ["bull-1", "bull"])
def test_a_number_that_is_used_as_a_custom_id_is_skipped(redis_url: str, prefix: str, dialect: str) -> None:
    """An intended difference: Bull 3 and 4 overwrite the other job, Bull 1 drops the new one; we keep both."""
    with BullQueue("met", url=redis_url, prefix=prefix, protocol=dialect) as queue:
        jobs = [NewJob({"n": n}, job_id="4" if n == 1 else None) for n in range(5)]
        added = queue.add_many(jobs)
        assert added.added == 5
        assert added.ids == ["1", "4", "3", "6", "5"]
        waiting = queue.handle.connection.call("LRANGE", queue.handle.keys["wait"], 0, -1)
        assert [job_id.decode() for job_id in waiting] == added.ids[::-1]


@each_peer
def test_any_list_of_jobs_is_added_as_by_node(pair: TwoQueues) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(jobs=job_lists(pair.peer.dialect, custom_ids=pair.peer.custom_ids), twice=st.booleans())
    def alike(jobs: list[Job], twice: bool) -> None:
        pair.renew()
        pair.add(jobs)
        if twice:
            pair.add(jobs)
        pair.assert_alike()

    alike()
