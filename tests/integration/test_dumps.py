"""The comparer of queues: equal queues have equal dumps, and each difference shows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from redis import Redis

from tests.support.dump import difference, dump, is_job, normalise, normalise_messages, window
from tests.support.jobs import random_jobs
from tests.support.node import PEERS, NodePeer, Peer
from tests.support.traffic import published

Start = Callable[..., NodePeer]
#: The last peer of each dialect.
OF_DIALECTS = {peer.dialect: peer for peer in PEERS}


@pytest.mark.parametrize("peer", OF_DIALECTS.values(), ids=str)
def test_equal_lists_leave_equal_dumps(node: Start, client: Redis, prefix: str, peer: Peer) -> None:
    library = node(peer.alias, prefix=prefix)
    jobs = random_jobs(Random(1), peer.dialect, 60, custom_ids=peer.custom_ids)
    queues = [f"{side}-{prefix}" for side in ("left", "right")]
    heard, dumps = [], []
    with window() as taken:
        for queue in queues:
            with published(client, prefix, queue) as messages:
                library.call("add", queue=queue, jobs=jobs)
            heard.append(messages)
            dumps.append(dump(client, prefix, queue))
    left, right = (normalise(raw, taken) for raw in dumps)

    assert {key.type for key in left.values()} >= {"list", "zset", "hash", "string"}
    assert difference(left, right) == []
    messages = [normalise_messages(*pair, taken) for pair in zip(heard, [prefix] * 2, dumps, strict=True)]
    assert difference(*messages) == []
    assert bool(messages[0]) == (peer.dialect != "bullmq")

    one = next(name for name, key in right.items() if is_job(key))
    client.hset(f"{prefix}:{queues[1]}:{one}", "extra", "99")
    client.rpush(f"{prefix}:{queues[1]}:wait", "stray")
    client.set(f"{prefix}:{queues[1]}:new", "key")
    client.pexpire(f"{prefix}:{queues[1]}:id", 60_000)
    altered = difference(left, normalise(dump(client, prefix, queues[1]), taken))
    assert any(sentence == f"{one}.extra: only right has '99'" for sentence in altered)
    assert any("items left" in sentence and sentence.startswith("wait:") for sentence in altered)
    assert any(sentence.startswith("new: only right has") for sentence in altered)
    assert any(sentence.startswith("id: only right has (string, expires)") for sentence in altered)
