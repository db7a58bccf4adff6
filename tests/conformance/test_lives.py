"""Random sequences of steps, done by Node in one queue and by us in another: both are compared after each step.

A failure prints the shortest sequence that shows it, and the differences. `make soak` runs many more sequences.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from random import randrange
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.strategies import SearchStrategy

from tests.support.jobs import HOUR, Job
from tests.support.life_steps import deduplicated_lives_of, lives_of
from tests.support.node import PEERS, each_peer_of
from tests.support.steps import Differs, Step, Steps, step

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


LEAVE = step("manage", verb="removeChildDependency", state="child", job=0, queue="other")
REMOVE_CHILDREN = step("manage", verb="removeUnprocessedChildren", state="parent", job=0)
BULLMQ = ("bullmq",)
LONG_AGO = 1_700_000_000_000
PAGES = [(0, 2), (0, 0), (1, 3), (2, 9), (4, 5), (0, -1), (-3, -1), (5, 4), (7, 9)]


LIVED_ONCE = [pytest.param(peer, marks=[pytest.mark.soak] if peer.alias in ALIKE else []) for peer in LIVED]
each_lived = pytest.mark.parametrize("peer", LIVED, ids=str)


#: Short sequences that once differed, and the packages that support all of their steps.
KNOWN_SEQUENCES: dict[str, tuple[tuple[str, ...], list[Step]]] = {
    "the counter of priorities goes with the last prioritised job": (
        BULLMQ,
        [step("add", jobs=[job(priority=1)]), step("claim", count=2), step("add", jobs=[job(priority=1)])],
    ),
    "parents in a tree that is removed start before": (
        BULLMQ,
        [
            step(
                "flow", flow=parent("p", [child("c", "main"), parent("q", [child("d", "other"), child("e", "main")])])
            ),
            step("manage", verb="remove", state="waiting-children", job=0),
            step("manage", verb="remove", state="waiting-children", job=0),
        ],
    ),
    "a job that fails without being run counts for the rate limit of BullMQ 5, not of 6": (
        BULLMQ,
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
            BULLMQ,
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
            BULLMQ,
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
            BULLMQ,
            [
                step("flow", flow=parent("p", [child("c", "other", **opts), child("d", "other")])),
                *steps,
                LEAVE,
                LEAVE,
                LEAVE,
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
            BULLMQ,
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
                REMOVE_CHILDREN,
                step("claim", count=4),
                step("claim", count=4, queue="other"),
                *[step("settle", does=[("complete", 1)] * 4) for _ in range(4)],
                REMOVE_CHILDREN,
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
            BULLMQ,
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
            (
                "no longer its child",
                {},
                [LEAVE],
            ),
            ("removed as unprocessed", {}, [REMOVE_CHILDREN]),
            (
                "removed on failure",
                {"removeOnFail": True},
                [step("claim", count=1, queue="other"), step("settle", does=[("fail", "x")])],
            ),
        ]
    },
    "a parent that waits for another queue's child outlives its obliterated queue": (
        BULLMQ,
        [
            step("flow", flow=parent("p", [child("c", "other"), child("d", "main")])),
            step("flow", flow=parent("q", [child("e", "main")])),
            step("obliterate", force=False),
            step("claim", count=1, queue="other"),
            step("settle", does=[("complete", 1)]),
        ],
    ),
    "prioritised jobs are cleaned by when they were added": (
        BULLMQ,
        [
            step("add", jobs=[job(priority=1, timestamp=LONG_AGO, attempts=2), job(priority=1, attempts=2)]),
            step("claim", count=2),
            step("settle", does=[("fail", "x"), ("fail", "x")]),
            step("clean", state="prioritized", grace=HOUR, limit=0),
        ],
    ),
    **{
        f"a page of {state} makes up for jobs that are gone": (
            BULLMQ,
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
            BULLMQ,
            [
                step("add", jobs=[job(**opts) for _ in range(3)]),
                step("lose", state=state, job=1),
                step("manage", verb="remove", state=state, job=1),
            ],
        )
        for state, opts in {"wait": {}, "delayed": {"delay": HOUR}, "prioritized": {"priority": 1}}.items()
    },
    **{
        f"a deduplication id whose job is gone is taken over {how}": (
            BULLMQ,
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
        BULLMQ,
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
            ("bull-4",),
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
            "obliterated": [step("obliterate", force=False)],
        }.items()
    },
    "a debounce id whose job was cleaned outlives its obliterated queue": (
        ("bull-4",),
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
        BULLMQ,
        [
            step("add", jobs=[once("x", HOUR), once("x", 2 * HOUR, replace=True), once("x", replace=True)]),
            step("add", jobs=[once("y", HOUR), once("y", 3 * HOUR, reschedule=True), once("y", HOUR, reschedule=True)]),
            step("add", jobs=[once("z", HOUR), once("z", 0, reschedule=True), once("z", 2 * HOUR, replace=True)]),
            step("due", count=3),
            step("claim", count=3),
        ],
    ),
    "the last job that came while another one was active runs after it": (
        BULLMQ,
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
            BULLMQ,
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
            BULLMQ,
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
        BULLMQ,
        [
            step("add", jobs=[job(attempts=2, backoff=HOUR), job()]),
            step("claim", count=1),
            step("settle", does=[("fail", "no")], then=1),
        ],
    ),
    "a delayed job that is due is promoted although the rate limit keeps it from starting": (
        BULLMQ,
        [
            step("add", jobs=[job(), job(), job(delay=HOUR)]),
            step("set", method="setGlobalRateLimit", args=[1, HOUR]),
            step("claim", count=1),
            step("due", count=1),
            step("promote_due"),
        ],
    ),
    "a worker that settles after its queue was obliterated leaves jobs with the same ids alone": (
        ("bull-4", "bullmq"),
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
        ("bull-4", "bullmq"),
        [
            step("add", jobs=[job()]),
            step("claim", count=1),
            step("obliterate", force=True),
            step("settle", does=[("complete", 1)]),
        ],
    ),
}


RESETS = {"resetAttemptsMade": True, "resetAttemptsStarted": True}
ALL, NAMED = ("bull-1", "bull", "bullmq"), ("bull", "bullmq")


def does(behaviour: str, **opts: Any) -> Job:
    return {"name": "task", "data": {"$behaviour": behaviour}, "opts": opts}


def managed(verb: str, state: str, *args: Any, job: int = 0, queue: str = "main") -> Step:
    return step("manage", verb=verb, state=state, job=job, queue=queue, args=list(args))


WORKED = [step("work", jobs=[does("log:a row;return:1"), does("log:a row;fail"), does("")], failures=1)]
FILLED = [*WORKED, step("add", jobs=[job(), job(delay=HOUR), job()])]
#: A sequence for each operation of a queue or a job, and the packages that have it.
OPERATIONS: dict[str, tuple[tuple[str, ...], list[Step]]] = {
    "pause": (ALL, [step("add", jobs=[job()] * 4), step("pause"), step("add", jobs=[job()] * 2), step("resume")]),
    "retry": (
        ALL,
        [step("work", jobs=[does("fail"), does("fail")], failures=2), step("add", jobs=[job()])]
        + [managed("retry", "failed")] * 2,
    ),
    "retry of a job that goes to the end": (
        NAMED,
        [
            step("work", jobs=[does("fail", lifo=True)], failures=1),
            step("add", jobs=[job()]),
            managed("retry", "failed"),
        ],
    ),
    "retry in a paused queue": (
        ("bull-4", "bullmq"),
        [step("work", jobs=[does("fail")], failures=1), step("pause"), managed("retry", "failed")],
    ),
    "retry of completed and prioritised jobs": (
        BULLMQ,
        [
            step("work", jobs=[does(""), does("fail", priority=3)], failures=1),
            managed("retry", "completed", "completed"),
            managed("retry", "failed"),
        ],
    ),
    **{
        f"retry from 0 with priority {priority}": (
            BULLMQ,
            [
                step("work", jobs=[does(""), does("fail", priority=priority)], failures=1),
                managed("retry", "failed", "failed", RESETS),
                managed("retry", "completed", "completed", RESETS),
            ],
        )
        for priority in (0, 3)
    },
    "promote": (ALL, [step("add", jobs=[job(), job(), job(delay=HOUR)]), managed("promote", "delayed")]),
    "promote by priority": (
        NAMED,
        [step("add", jobs=[job(priority=priority) for priority in (0, 3, 1, 2)] * 2)]
        + [step("add", jobs=[job(priority=priority, delay=HOUR) for priority in (0, 3, 1, 2)])]
        + [managed("promote", "delayed")] * 4,
    ),
    "remove": (
        ALL,
        FILLED + [managed("remove", state) for state in ("completed", "failed", "wait", "delayed", "wait")],
    ),
    "remove a prioritised job": (NAMED, [step("add", jobs=[job(priority=2)]), managed("remove", "any")]),
    **{
        f"clean {state}": (ALL, [*FILLED, step("clean", state=state, limit=0)])
        for state in ("completed", "failed", "wait", "delayed")
    },
    "clean no young job": (ALL, [*WORKED, step("clean", state="completed", limit=0, grace=HOUR)]),
    "clean some": (
        NAMED,
        [step("work", jobs=[does("")] * 4), step("clean", state="completed", limit=3)],
    ),
    "drain": (ALL, [*FILLED, step("drain", delayed=True)]),
    "drain with priorities, not the delayed jobs": (
        BULLMQ,
        [*FILLED, step("add", jobs=[job(priority=3)]), step("drain", delayed=False)],
    ),
    "obliterate": (NAMED, [*FILLED, step("add", jobs=[job(priority=3)]), step("obliterate", force=False)]),
    "update": (
        NAMED,
        [step("add", jobs=[job(), job(delay=HOUR)])]
        + [managed("updateData", state, {"n": "ä"}) for state in ("wait", "delayed")],
    ),
    "delay": (
        BULLMQ,
        [step("add", jobs=[job(delay=HOUR), job(delay=HOUR)])]
        + [managed("changeDelay", "delayed", delay) for delay in (0, 2 * HOUR)],
    ),
    **{
        f"keep {kept} rows of a log": (
            BULLMQ,
            [step("work", jobs=[does("log:a;log:b;log:c")]), managed("clearLogs", "completed", *kept)],
        )
        for kept in ([], [2])
    },
    "remove orphans": (
        BULLMQ,
        [
            step("add", jobs=[job() for _ in range(4)]),
            *(step("redis", command=["LREM", "main:wait", 1, job_id]) for job_id in ("2", "3")),
            step("redis", command=["RPUSH", "main:2:logs", "a row"]),
            step("call", method="removeOrphanedJobs"),
        ],
    ),
    **{
        f"prioritize, LIFO {lifo}, {len(paused)} pauses": (
            BULLMQ,
            [
                step("add", jobs=[job(), job(), job(priority=3), job(priority=3), job(delay=HOUR)]),
                *paused,
                *(
                    managed("changePriority", "any", {"priority": priority, "lifo": lifo}, job=number)
                    for number, priority in ((0, 2), (1, 0), (3, 3), (2, 0), (0, 3), (4, 4))
                ),
            ],
        )
        for lifo in (False, True)
        for paused in ([], [step("pause")])
    },
    "free a deduplication id": (BULLMQ, [step("add", jobs=[once("d")]), managed("removeDeduplicationKey", "wait")]),
    **{
        f"remove all children in {queue} by {how}": (
            BULLMQ,
            [step("flow", flow=parent("p", [child("c", queue), child("d", queue)])), *removal],
        )
        for queue in ("main", "other")
        for how, removal in {
            "remove": [managed("remove", "wait", queue=queue)] * 2,
            "clean": [step("clean", state="wait", limit=0, queue=queue)],
            "drain": [step("drain", delayed=False, queue=queue)],
            "obliterate": [step("obliterate", force=False, queue=queue)],
        }.items()
    },
    **{
        f"retry a {state} child": (
            BULLMQ,
            [
                step(
                    "flow", flow=parent("p", [child("c", "main", ignoreDependencyOnFailure=True), child("d", "other")])
                ),
                step("claim", count=1),
                step("settle", does=[outcome]),
                managed("retry", state, state),
            ],
        )
        for state, outcome in (("failed", ("fail", "x")), ("completed", ("complete", 1)))
    },
}


@pytest.mark.interop
@each_peer_of("bull-1", "bull", "bullmq")
def test_each_operation_leaves_the_same_keys_as_with_node(steps: Steps) -> None:
    live_each(steps, OPERATIONS)


@pytest.mark.interop
@pytest.mark.parametrize("peer", LIVED_ONCE, ids=str)
def test_known_sequences_of_steps_leave_the_same_keys_as_with_node(steps: Steps) -> None:
    live_each(steps, KNOWN_SEQUENCES)


def live_each(steps: Steps, sequences: dict[str, tuple[tuple[str, ...], list[Step]]]) -> None:
    differing = []
    for name, (packages, life) in sequences.items():
        if steps.peer.among(packages):
            try:
                steps.live(life)
            except Differs as apart:
                differing.append(f"{name}: {apart}")
    if differing:
        pytest.fail("\n\n".join(differing), pytrace=False)


def some_lives(made: SearchStrategy[list[Step]], first: int) -> list[list[Step]]:
    """Ten sequences, the same for the same seed."""
    lives: list[list[Step]] = []
    few = settings(max_examples=10, deadline=None, database=None, phases=[Phase.generate])
    # Otherwise Hypothesis also draws constants of the source, and a seed has other sequences after each change of it.
    with patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None):
        seed(first)(few(given(made)(lambda life: lives.append(life))))()
    return lives


def live_at_random(steps: Steps, first: int, most: int, made: Callable[[str], SearchStrategy[list[Step]]]) -> None:
    """Runs sequences until so many steps were done; shortens a failing one, faster than Hypothesis would."""
    steps.done = 0
    for number in count(first):
        for life in some_lives(made(steps.peer.dialect), number):
            try:
                steps.live(life)
            except Differs as apart:
                shortest = steps.shortest(life, apart)
                pytest.fail(f"{shortest}\nseed {number}", pytrace=False)
            if steps.done >= most:
                return


@each_lived
@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(1200)
def test_random_sequences_of_steps_leave_the_same_keys_as_with_node(steps: Steps) -> None:
    live_at_random(steps, int(os.environ.get("SPARK_BULL_LIVES_SEED", SEED)), STEPS, lives_of)


@each_lived
@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(1200)
def test_random_adds_with_deduplication_ids_leave_the_same_keys_as_with_node(steps: Steps) -> None:
    live_at_random(steps, int(os.environ.get("SPARK_BULL_LIVES_SEED", SEED)), STEPS // 4, deduplicated_lives_of)


@each_lived
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_random_sequences_of_steps_leave_the_same_keys_as_with_node(steps: Steps) -> None:
    first = randrange(10**9)
    print(f"seed {first}")
    live_at_random(steps, first, SOAK_STEPS, lives_of)


@each_lived
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_ten_thousand_random_adds_with_deduplication_ids_leave_the_same_keys_as_with_node(steps: Steps) -> None:
    first = randrange(10**9)
    print(f"seed {first}")
    # Half of the steps add jobs, four on average.
    live_at_random(steps, first, 5_500, deduplicated_lives_of)
