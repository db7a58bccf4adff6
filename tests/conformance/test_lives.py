"""Random sequences of steps, done by Node in one queue and by us in another: both are compared after each step.

A failure prints the shortest sequence that shows it, and the differences. `make soak` runs many more sequences.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from itertools import count
from random import randrange
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.strategies import SearchStrategy
from redis import Redis

from spark_bull.embedded.redis import EmbeddedRedis
from tests.support.jobs import HOUR, Job
from tests.support.life_steps import deduplicated_lives_of, lives_of
from tests.support.lives import PREFIXES, LifeDiffers, Lives, Step, step
from tests.support.node_peer import NodePeer
from tests.support.peers import PEERS, Peer

#: Steps of one run, and of `make soak`.
STEPS = 200
SOAK_STEPS = 50_000
#: The seed of ordinary runs; SPARK_BULL_LIVES_SEED=<seed> repeats a failure of another seed.
SEED = 9

LIVED = [peer for peer in PEERS if peer.alias in ("bull-4.16.5", "bullmq-5.81.5", "bullmq-6.7.0")]
#: It does most steps as BullMQ 6: the known sequences are part of `make soak`.
ALIKE = ("bullmq-5.81.5",)


def job(**opts: Any) -> Job:
    return {"name": "task", "data": {}, "opts": opts}


def child(name: str, queue: str, **opts: Any) -> dict[str, Any]:
    return {"name": "part", "queueName": queue, "data": {}, "opts": {"jobId": name, **opts}}


def parent(name: str, children: list[dict[str, Any]], **opts: Any) -> dict[str, Any]:
    return {**child(name, "main", **opts), "children": children}


def once(name: str, delay: int = 0, **rule: Any) -> Job:
    return job(**({"delay": delay} if delay else {}), deduplication={"id": name, **rule})


def debounced(name: str, delay: int = 0) -> Job:
    return job(**({"delay": delay} if delay else {}), debounce={"id": name})


LONG_AGO = 1_700_000_000_000
PAGES = [(0, 2), (0, 0), (1, 3), (2, 9), (4, 5), (0, -1), (-3, -1), (5, 4), (7, 9)]


@pytest.fixture(scope="module")
def lives_of_peer(node_packages: None) -> Iterator[Callable[[Peer], Lives]]:
    """Returns the lives of a package, with two processes of it and a Redis of their own."""
    with ExitStack() as stack:

        @cache
        def start(peer: Peer) -> Lives:
            url = stack.enter_context(EmbeddedRedis()).url
            left, right = (stack.enter_context(NodePeer(peer.alias, url, prefix)) for prefix in PREFIXES)
            client = stack.enter_context(Redis.from_url(url))
            return stack.enter_context(closing(Lives(peer, (left, right), client, url)))

        yield start


@pytest.fixture(params=LIVED, ids=str)
def lives(request: pytest.FixtureRequest, lives_of_peer: Callable[[Peer], Lives]) -> Lives:
    return lives_of_peer(request.param)


#: Short sequences that once differed, and the dialects that support all of their steps.
KNOWN_SEQUENCES = {
    "the counter of priorities goes with the last prioritised job": (
        ["bullmq"],
        [step("add", jobs=[job(priority=1)]), step("claim", count=2), step("add", jobs=[job(priority=1)])],
    ),
    "parents in a tree that is removed start before": (
        ["bullmq"],
        [
            step(
                "flow", flow=parent("p", [child("c", "main"), parent("q", [child("d", "other"), child("e", "main")])])
            ),
            step("manage", verb="remove", state="waiting-children", job=0),
            step("manage", verb="remove", state="waiting-children", job=0),
        ],
    ),
    "a job that fails without being run counts for the rate limit of BullMQ 5, not of 6": (
        ["bullmq"],
        [
            step("flow", flow=parent("p", [child("c", "main", failParentOnFailure=True)])),
            step("claim", count=1),
            step("settle", does=[("fail", "x")]),
            step("set", method="setGlobalRateLimit", args=[4, HOUR]),
            step("claim", count=1),
        ],
    ),
    **{
        f"a job that waits for its children {how}": (
            ["bullmq"],
            [
                step("add", jobs=[job(jobId="p", **opts), job()]),
                step("claim", count=1),
                *flow,
                step("settle", does=[("wait for children", None)]),
                step("claim", count=2),
                step("claim", count=2, queue="other"),
                *[step("settle", does=[("complete", 1)], claim=number) for number in range(3)],
                step("claim", count=2),
                step("settle", does=[("complete", 2), ("complete", 2)]),
            ],
        )
        for how, opts, flow in [
            ("without having one runs again", {}, []),
            ("without having one keeps its priority", {"priority": 2}, []),
            ("runs when they have completed", {}, [step("flow", flow=parent("p", [child("c", "other")]))]),
        ]
    },
    **{
        f"a job that waits for its children, one of which has failed, {how}": (
            ["bullmq"],
            [
                step("add", jobs=[job(jobId="p", attempts=3)]),
                step("claim", count=1),
                step("flow", flow=parent("p", [child("c", "other", **rule), child("d", "other")])),
                step("claim", count=1, queue="other"),
                step("settle", does=[("fail", "no")], claim=1),
                step("settle", does=[("wait for children", None)]),
                step("claim", count=1),
                step("settle", does=[("complete", 1)]),
                step("claim", count=1, queue="other"),
                step("settle", does=[("complete", 1)]),
                step("claim", count=1),
                step("settle", does=[("complete", 1)]),
            ],
        )
        for how, rule in {
            "fails with the first": {"failParentOnFailure": True},
            "waits for the others after a failure that it continues after": {"continueParentOnFailure": True},
            "waits for the others after an ignored failure": {"ignoreDependencyOnFailure": True},
            "waits for the others after a removed dependency": {"removeDependencyOnFailure": True},
            "waits for it to be retried": {},
        }.items()
    },
    **{
        f"a job {how} leaves its parent": (
            ["bullmq"],
            [
                step("flow", flow=parent("p", [child("c", "other", **opts), child("d", "other")])),
                *steps,
                step("leave_parent", job=0, queue="other"),
                step("leave_parent", job=0, queue="other"),
                step("leave_parent", job=0, queue="other"),
                step("claim", count=1),
            ],
        )
        for how, opts, steps in [
            ("that waits", {}, []),
            ("that is delayed", {"delay": HOUR}, []),
            ("that is active", {}, [step("claim", count=2, queue="other")]),
            (
                "that has completed",
                {},
                [step("claim", count=2, queue="other"), step("settle", does=[("complete", 1)])],
            ),
        ]
    },
    **{
        f"the children of a job are removed, except {which}": (
            ["bullmq"],
            [
                step(
                    "flow",
                    flow=parent(
                        "p",
                        [
                            child("a", "other", failParentOnFailure=True),
                            child("b", "other"),
                            child("c", "main", delay=HOUR),
                            {**child("d", "main"), "children": [child("e", "other"), child("f", "other")]},
                        ],
                    ),
                ),
                *steps,
                step("remove_children", job=0),
                step("claim", count=4),
                step("claim", count=4, queue="other"),
                *[step("settle", does=[("complete", 1)] * 4) for _ in range(4)],
                step("remove_children", job=0),
            ],
        )
        for which, steps in {
            "none": [],
            "active ones": [step("claim", count=2, queue="other")],
            "completed ones": [step("claim", count=2, queue="other"), step("settle", does=[("complete", 1)] * 2)],
            "a failed one": [step("claim", count=1, queue="other"), step("settle", does=[("fail", "x")])],
            "grandchildren that have ended": [
                step("claim", count=4, queue="other"),
                step("settle", does=[("complete", 1), ("fail", "x"), ("complete", 2), ("give up", "y")]),
            ],
        }.items()
    },
    **{
        f"a prioritised parent becomes the next job when its last child is {how}": (
            ["bullmq"],
            [
                step("flow", flow=parent("p", [child("c", "other", **opts)], priority=2)),
                step("add", jobs=[job(), job(priority=1)]),
                *steps,
                step("claim", count=3),
            ],
        )
        for how, opts, steps in [
            ("removed", {}, [step("manage", verb="remove", state="wait", job=0, queue="other")]),
            ("drained", {}, [step("drain", delayed=False, queue="other")]),
            ("cleaned", {}, [step("clean", state="wait", limit=0, queue="other")]),
            ("obliterated", {}, [step("obliterate", force=False, queue="other")]),
            ("no longer its child", {}, [step("leave_parent", job=0, queue="other")]),
            ("removed as unprocessed", {}, [step("remove_children", job=0)]),
            (
                "removed on failure",
                {"removeOnFail": True},
                [step("claim", count=1, queue="other"), step("settle", does=[("fail", "x")])],
            ),
        ]
    },
    "a parent that waits for another queue's child outlives its obliterated queue": (
        ["bullmq"],
        [
            step("flow", flow=parent("p", [child("c", "other"), child("d", "main")])),
            step("flow", flow=parent("q", [child("e", "main")])),
            step("obliterate", force=False),
            step("claim", count=1, queue="other"),
            step("settle", does=[("complete", 1)]),
        ],
    ),
    "prioritised jobs are cleaned by when they were added": (
        ["bullmq"],
        [
            step("add", jobs=[job(priority=1, timestamp=LONG_AGO, attempts=2), job(priority=1, attempts=2)]),
            step("claim", count=2),
            step("settle", does=[("fail", "x"), ("fail", "x")]),
            step("clean", state="prioritized", grace=HOUR, limit=0),
        ],
    ),
    **{
        f"a page of {state} makes up for jobs that are gone": (
            ["bullmq"],
            [
                step("add", jobs=[job(**opts) for _ in range(7)]),
                *[step("lose", state=state, job=number) for number in (0, 2, 3)],
                *[step("page", state=state, start=start, stop=stop) for start, stop in PAGES],
                *[step("lose", state=state, job=number) for number in (1, 4, 5, 6)],
                step("page", state=state, start=0, stop=2),
            ],
        )
        for state, opts in {"wait": {}, "delayed": {"delay": HOUR}, "prioritized": {"priority": 1}}.items()
    },
    **{
        f"an id without a job is removed from {state}": (
            ["bullmq"],
            [
                step("add", jobs=[job(**opts) for _ in range(3)]),
                step("lose", state=state, job=1),
                step("remove_by_id", state=state, job=1),
            ],
        )
        for state, opts in {"wait": {}, "delayed": {"delay": HOUR}, "prioritized": {"priority": 1}}.items()
    },
    **{
        f"a deduplication id whose job is gone is taken over {how}": (
            ["bullmq"],
            [
                step("add", jobs=[once("x", keepLastIfActive=True)]),
                step("lose", state="wait", job=0),
                step("add", jobs=[once("x", **rule), once("x")]),
            ],
        )
        for how, rule in {
            "by the next one": {},
            "with a TTL": {"ttl": HOUR},
            "and extended": {"ttl": HOUR, "extend": True},
            "instead of replaced": {"replace": True},
        }.items()
    },
    "a job that replaces a delayed one discards what was stored while that was active, in BullMQ 6": (
        ["bullmq"],
        [
            step("add", jobs=[once("x", keepLastIfActive=True)]),
            step("claim", count=1),
            step("add", jobs=[once("x", keepLastIfActive=True)]),
            step("settle", does=[("delay", HOUR)]),
            step("add", jobs=[once("x", replace=True)]),
            step("claim", count=1),
            step("settle", does=[("complete", 1)], then=1),
        ],
    ),
    **{
        f"removing a {state} job frees its debounce id, whichever job has it": (
            ["bull"],
            [
                step("add", jobs=[debounced("x"), debounced("y", HOUR)]),
                step("claim", count=1),
                step("settle", does=[("complete", 1)]),
                step("add", jobs=[debounced("x")]),
                *removal,
                step("add", jobs=[debounced("x"), debounced("y")]),
            ],
        )
        for state, removal in {
            "completed": [step("manage", verb="remove", state="completed", job=0)],
            "waiting": [step("manage", verb="remove", state="wait", job=0)],
            "cleaned": [step("clean", state="wait", limit=0)],
            "cleaned completed": [step("clean", state="completed", limit=0)],
            "drained": [step("drain", delayed=True)],
            "obliterated": [step("obliterate", force=False)],
        }.items()
    },
    "a debounce id whose job was cleaned outlives its obliterated queue": (
        ["bull"],
        [
            step("add", jobs=[job(debounce={"id": "x", "ttl": HOUR}), job(debounce={"id": "y", "ttl": HOUR})]),
            step("claim", count=1),
            step("settle", does=[("give up", "x")]),
            step("clean", state="failed", limit=0),
            step("obliterate", force=True),
            step("add", jobs=[debounced("x"), debounced("y")]),
        ],
    ),
    "jobs of one call replace and reschedule each other": (
        ["bullmq"],
        [
            step("add", jobs=[once("x", HOUR), once("x", 2 * HOUR, replace=True), once("x", replace=True)]),
            step("add", jobs=[once("y", HOUR), once("y", 3 * HOUR, reschedule=True), once("y", HOUR, reschedule=True)]),
            step("add", jobs=[once("z", HOUR), once("z", 0, reschedule=True), once("z", 2 * HOUR, replace=True)]),
            step("due", count=3),
            step("claim", count=3),
        ],
    ),
    "the last job that came while another one was active runs after it": (
        ["bullmq"],
        [
            step("add", jobs=[once("x", keepLastIfActive=True, ttl=HOUR)]),
            step("claim", count=1),
            step("add", jobs=[once("x", keepLastIfActive=True), once("x", HOUR, keepLastIfActive=True)]),
            step("settle", does=[("fail", "no")], then=1),
            step("add", jobs=[once("x", keepLastIfActive=True), once("x", keepLastIfActive=True, replace=True)]),
            step("claim", count=1),
        ],
    ),
    **{
        f"a job whose {state} child is its parent is removed with it, from {removed}": (
            ["bullmq"],
            [
                step("flow", flow=parent("p", [child("c", "main", ignoreDependencyOnFailure=True)])),
                step("claim", count=1),
                step("settle", does=[outcome]),
                step("flow", flow=parent("c", [child("p", "main"), child("d", "other")])),
                step("manage", verb="remove", state=removed, job=0),
            ],
        )
        for state, outcome, removed in [
            ("failed", ("give up", "x"), "wait"),
            ("failed", ("give up", "x"), "failed"),
            ("completed", ("complete", 1), "wait"),
            ("completed", ("complete", 1), "completed"),
        ]
    },
    **{
        f"a queue {how}": (
            ["bullmq"],
            [
                step("add", jobs=[job(), job(attempts=2, backoff=HOUR)]),
                step("claim", count=2),
                step("settle", does=[("complete", 1), *outcomes], then=then),
            ],
        )
        for how, outcomes, then in [
            ("is drained when the last job ends", [("give up", "x")], 1),
            ("is drained when the last job ends and none is claimed", [("give up", "x")], 0),
            ("whose last job is delayed is not drained", [("fail", "x")], 0),
            ("with a delayed job is not drained by a claim", [("fail", "x")], 1),
            ("whose last job moves to the delayed ones is not drained", [("delay", HOUR)], 0),
        ]
    },
    "a job that starts in the call that delays a failed one": (
        ["bullmq"],
        [
            step("add", jobs=[job(attempts=2, backoff=HOUR), job()]),
            step("claim", count=1),
            step("settle", does=[("fail", "no")], then=1),
        ],
    ),
    "a delayed job that is due is promoted although the rate limit keeps it from starting": (
        ["bullmq"],
        [
            step("add", jobs=[job(), job(), job(delay=HOUR)]),
            step("set", method="setGlobalRateLimit", args=[1, HOUR]),
            step("claim", count=1),
            step("due", count=1),
            step("promote_due"),
        ],
    ),
    "a worker that settles after its queue was obliterated leaves jobs with the same ids alone": (
        ["bull", "bullmq"],
        [
            step("add", jobs=[job(), job()]),
            step("claim", count=2),
            step("obliterate", force=True),
            step("add", jobs=[job()]),
            step("settle", does=[("give up", "x"), ("complete", 1)]),
            step("claim", count=1),
            step("settle", does=[("complete", 1)], claim=1),
        ],
    ),
    "a worker that settles after its queue was obliterated leaves no key": (
        ["bull", "bullmq"],
        [
            step("add", jobs=[job()]),
            step("claim", count=1),
            step("obliterate", force=True),
            step("settle", does=[("complete", 1)]),
        ],
    ),
}


@pytest.mark.parametrize(
    ("lives", "name"),
    [
        pytest.param(peer, name, id=f"{peer}-{name}", marks=[pytest.mark.soak] if peer.alias in ALIKE else [])
        for peer in LIVED
        for name in KNOWN_SEQUENCES
        if peer.dialect in KNOWN_SEQUENCES[name][0]
    ],
    indirect=["lives"],
)
def test_a_known_sequence_of_steps_leaves_the_same_keys_as_with_node(lives: Lives, name: str) -> None:
    _, life = KNOWN_SEQUENCES[name]
    lives.live(life)


def some_lives(made: SearchStrategy[list[Step]], first: int) -> list[list[Step]]:
    """Ten sequences, the same for the same seed."""
    lives: list[list[Step]] = []
    few = settings(max_examples=10, deadline=None, database=None, phases=[Phase.generate])
    # Otherwise Hypothesis also draws constants of the source, and a seed has other sequences after each change of it.
    with patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None):
        seed(first)(few(given(made)(lambda life: lives.append(life))))()
    return lives


def live_at_random(lives: Lives, first: int, steps: int, made: Callable[[str], SearchStrategy[list[Step]]]) -> None:
    """Runs sequences until so many steps were done; shortens a failing one, faster than Hypothesis would."""
    lives.steps = 0
    for number in count(first):
        for life in some_lives(made(lives.peer.dialect), number):
            try:
                lives.live(life)
            except LifeDiffers as apart:
                shortest = lives.shortest(life, apart)
                pytest.fail(f"{shortest}\nseed {number}", pytrace=False)
            if lives.steps >= steps:
                return


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(1200)
def test_random_sequences_of_steps_leave_the_same_keys_as_with_node(lives: Lives) -> None:
    live_at_random(lives, int(os.environ.get("SPARK_BULL_LIVES_SEED", SEED)), STEPS, lives_of)


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(1200)
def test_random_adds_with_deduplication_ids_leave_the_same_keys_as_with_node(lives: Lives) -> None:
    live_at_random(lives, int(os.environ.get("SPARK_BULL_LIVES_SEED", SEED)), STEPS // 4, deduplicated_lives_of)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_random_sequences_of_steps_leave_the_same_keys_as_with_node(lives: Lives) -> None:
    first = randrange(10**9)
    print(f"seed {first}")
    live_at_random(lives, first, SOAK_STEPS, lives_of)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_ten_thousand_random_adds_with_deduplication_ids_leave_the_same_keys_as_with_node(lives: Lives) -> None:
    first = randrange(10**9)
    print(f"seed {first}")
    # Half of the steps add jobs, four on average.
    live_at_random(lives, first, 5_500, deduplicated_lives_of)
