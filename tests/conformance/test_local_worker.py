"""Jobs that a LocalWorker has processed leave the same keys as with a Node worker; see test_work_parity.py."""

from __future__ import annotations

import re

import pytest

from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.run.worker.local_worker import LocalWorker
from tests.conformance.test_work_parity import LIVES, UNKNOWN_TO
from tests.support.node import NEWEST, PEERS, Peer
from tests.support.pair import Pair
from tests.support.worker import behave

#: Lives whose jobs end in the order in which they were added, so that one queue can have all of them.
IN_ORDER = ("ended or retried at once", "discarded", "removed on completion")


@pytest.mark.parametrize(
    ("peer", "processes"),
    [
        *(pytest.param(peer, False, marks=() if peer.alias in NEWEST else pytest.mark.rest) for peer in PEERS),
        (next(one for one in PEERS if one.alias == "bullmq-6.7.0"), True),
    ],
    ids=str,
)
def test_a_local_worker_leaves_the_same_keys_as_a_node_worker(pair: Pair, peer: Peer, processes: bool) -> None:
    def local(queue: BullQueue, _chunk_size: int) -> LocalWorker:
        return LocalWorker(
            queue.name,
            behave,
            processes=processes,
            promoter=False,
            url=pair.url,
            prefix=pair.prefix,
            protocol=peer.dialect,
        )

    pair.ours = local
    for life in IN_ORDER:
        if life not in UNKNOWN_TO.get(peer.alias, ()):
            pair.add(LIVES[life])
    pair.live()
    differences = pair.differences()
    # Node's worker has no name here, and BullMQ stores that of ours.
    assert [one for one in differences if not re.fullmatch(r"\d+\.pb: only right has 'spark-\w+'", one)] == []
