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

from tests.conformance.life_steps import deduplicated_lives_of, lives_of
from tests.support.jobs import HOUR, Job, job
from tests.support.node import each_peer_of
from tests.support.steps import Differs, Step, Steps, step
from tests.support.traffic import send_scripts_twice

#: Steps of one run, and of `make soak`.
STEPS = 200
SOAK_STEPS = 50_000
SOAK = (pytest.mark.soak, pytest.mark.timeout(0))
#: The seed of ordinary runs; SPARK_BULL_LIVES_SEED=<seed> repeats a failure of another seed.
SEED = 9

Made = Callable[[str], SearchStrategy[list[Step]]]


def child(name: str, queue: str, **opts: Any) -> dict[str, Any]:
    return {"name": "part", "queueName": queue, "data": {}, "opts": {"jobId": name, **opts}}


def parent(name: str, children: list[dict[str, Any]], **opts: Any) -> dict[str, Any]:
    return {**child(name, "main", **opts), "children": children}


def add(*jobs: Job) -> Step:
    return step("add", jobs=list(jobs))


def claim(count: int, queue: str = "main") -> Step:
    return step("claim", count=count, queue=queue)


def settle(*does: tuple[str, Any], **args: int) -> Step:
    return step("settle", does=list(does), **args)


def flow(name: str, children: list[dict[str, Any]], **opts: Any) -> Step:
    return step("flow", flow=parent(name, children, **opts))


def managed(verb: str, state: str, *args: Any, job: int = 0, queue: str = "main") -> Step:
    return step("manage", verb=verb, state=state, job=job, queue=queue, args=list(args))


DONE = ("complete", 1)


def once(name: str, delay: int = 0, **rule: Any) -> Job:
    return job(**({"delay": delay} if delay else {}), deduplication={"id": name, **rule})


def debounced(name: str, delay: int = 0) -> Job:
    return job(**({"delay": delay} if delay else {}), debounce={"id": name})


LEAVE = managed("removeChildDependency", "child", queue="other")
REMOVE_CHILDREN = managed("removeUnprocessedChildren", "parent")
BULLMQ = ("bullmq",)
#: Sequences by their names, for packages that support all of their steps.
Sequences = dict[tuple[str, ...], dict[str, list[Step]]]
LONG_AGO = 1_700_000_000_000
PAGES = [(0, 2), (0, 0), (1, 3), (2, 9), (4, 5), (0, -1), (-3, -1), (5, 4), (7, 9)]


#: Short sequences that once differed.
KNOWN_SEQUENCES: Sequences = {
    BULLMQ: {
        "the counter of priorities goes with the last prioritised job": [
            add(job(priority=1)),
            claim(2),
            add(job(priority=1)),
        ],
        "a job that gets a parent while it is active reports its result to it": [
            add(job(jobId="c")),
            claim(1),
            flow("p", [child("c", "main")]),
            settle(DONE),
            claim(1),
        ],
        "parents in a tree that is removed start before": [
            flow("p", [child("c", "main"), parent("q", [child("d", "other"), child("e", "main")])]),
            managed("remove", "waiting-children"),
            managed("remove", "waiting-children"),
        ],
        "a job that fails without being run counts for the rate limit of BullMQ 5, not of 6": [
            flow("p", [child("c", "main", failParentOnFailure=True)]),
            claim(1),
            settle(("fail", "x")),
            step("call", method="setGlobalRateLimit", args=[4, HOUR]),
            claim(1),
        ],
        **{
            f"a job that waits for its children {how}": [
                add(job(jobId="p", **opts), job()),
                claim(1),
                *flow,
                settle(("wait for children", None)),
                claim(2),
                claim(2, "other"),
                *[settle(DONE, claim=number) for number in range(3)],
                claim(2),
                settle(("complete", 2), ("complete", 2)),
            ]
            for how, opts, flow in [
                ("without having one runs again", {}, []),
                ("without having one keeps its priority", {"priority": 2}, []),
                ("runs when they have completed", {}, [flow("p", [child("c", "other")])]),
            ]
        },
        **{
            f"a job that waits for its children, one of which has failed, {how}": [
                add(job(jobId="p", attempts=3)),
                claim(1),
                flow("p", [child("c", "other", **rule), child("d", "other")]),
                claim(1, "other"),
                settle(("fail", "no"), claim=1),
                settle(("wait for children", None)),
                claim(1),
                settle(DONE),
                claim(1, "other"),
                settle(DONE),
                claim(1),
                settle(DONE),
            ]
            for how, rule in {
                "fails with the first": {"failParentOnFailure": True},
                "waits for the others after a failure that it continues after": {"continueParentOnFailure": True},
                "waits for the others after an ignored failure": {"ignoreDependencyOnFailure": True},
                "waits for the others after a removed dependency": {"removeDependencyOnFailure": True},
                "waits for it to be retried": {},
            }.items()
        },
        **{
            f"a job {how} leaves its parent": [
                flow("p", [child("c", "other", **opts), child("d", "other")]),
                *steps,
                LEAVE,
                LEAVE,
                LEAVE,
                claim(1),
            ]
            for how, opts, steps in [
                ("that waits", {}, []),
                ("that is delayed", {"delay": HOUR}, []),
                ("that is active", {}, [claim(2, "other")]),
                ("that has completed", {}, [claim(2, "other"), settle(DONE)]),
            ]
        },
        **{
            f"the children of a job are removed, except {which}": [
                flow(
                    "p",
                    [
                        child("a", "other", failParentOnFailure=True),
                        child("b", "other"),
                        child("c", "main", delay=HOUR),
                        {**child("d", "main"), "children": [child("e", "other"), child("f", "other")]},
                    ],
                ),
                *steps,
                REMOVE_CHILDREN,
                claim(4),
                claim(4, "other"),
                *[settle(*[DONE] * 4) for _ in range(4)],
                REMOVE_CHILDREN,
            ]
            for which, steps in {
                "none": [],
                "active ones": [claim(2, "other")],
                "completed ones": [claim(2, "other"), settle(*[DONE] * 2)],
                "a failed one": [claim(1, "other"), settle(("fail", "x"))],
                "grandchildren that have ended": [
                    claim(4, "other"),
                    settle(DONE, ("fail", "x"), ("complete", 2), ("give up", "y")),
                ],
            }.items()
        },
        **{
            f"a prioritised parent becomes the next job when its last child is {how}": [
                flow("p", [child("c", "other", **opts)], priority=2),
                add(job(), job(priority=1)),
                *steps,
                claim(3),
            ]
            for how, opts, steps in [
                ("removed", {}, [managed("remove", "wait", queue="other")]),
                ("removed in a paused queue", {}, [step("pause"), managed("remove", "wait", queue="other")]),
                ("drained", {}, [step("drain", delayed=False, queue="other")]),
                ("cleaned", {}, [step("clean", state="wait", limit=0, queue="other")]),
                ("obliterated", {}, [step("obliterate", force=False, queue="other")]),
                ("no longer its child", {}, [LEAVE]),
                ("removed as unprocessed", {}, [REMOVE_CHILDREN]),
                ("removed on failure", {"removeOnFail": True}, [claim(1, "other"), settle(("fail", "x"))]),
            ]
        },
        "a parent that waits for another queue's child outlives its obliterated queue": [
            flow("p", [child("c", "other"), child("d", "main")]),
            flow("q", [child("e", "main")]),
            step("obliterate", force=False),
            claim(1, "other"),
            settle(DONE),
        ],
        "prioritised jobs are cleaned by when they were added": [
            add(job(priority=1, timestamp=LONG_AGO, attempts=2), job(priority=1, attempts=2)),
            claim(2),
            settle(("fail", "x"), ("fail", "x")),
            step("clean", state="prioritized", grace=HOUR, limit=0),
        ],
        **{
            f"a page of {state} makes up for jobs that are gone": [
                add(*[job(**opts) for _ in range(7)]),
                *[step("lose", state=state, job=number) for number in (0, 2, 3)],
                *[step("page", state=state, start=start, stop=stop) for start, stop in PAGES],
                *[step("lose", state=state, job=number) for number in (1, 4, 5, 6)],
                step("page", state=state, start=0, stop=2),
            ]
            for state, opts in {"wait": {}, "delayed": {"delay": HOUR}, "prioritized": {"priority": 1}}.items()
        },
        **{
            f"an id without a job is removed from {state}": [
                add(*[job(**opts) for _ in range(3)]),
                step("lose", state=state, job=1),
                managed("remove", state, job=1),
            ]
            for state, opts in {"wait": {}, "delayed": {"delay": HOUR}, "prioritized": {"priority": 1}}.items()
        },
        **{
            f"a deduplication id whose job is gone is taken over {how}": [
                add(once("x", keepLastIfActive=True)),
                step("lose", state="wait", job=0),
                add(once("x", **rule), once("x")),
            ]
            for how, rule in {
                "by the next one": {},
                "with a TTL": {"ttl": HOUR},
                "and extended": {"ttl": HOUR, "extend": True},
                "instead of replaced": {"replace": True},
            }.items()
        },
        "a job that replaces a delayed one discards what was stored while that was active, in BullMQ 6": [
            add(once("x", keepLastIfActive=True)),
            claim(1),
            add(once("x", keepLastIfActive=True)),
            settle(("delay", HOUR)),
            add(once("x", replace=True)),
            claim(1),
            settle(DONE, then=1),
        ],
        **{
            f"a job that came while another one was active {goes}": [
                add(once("x", keepLastIfActive=True)),
                claim(1),
                add(job(), job(lifo=lifo, deduplication={"id": "x", "keepLastIfActive": True})),
                settle(DONE),
            ]
            for goes, lifo in {"goes to the back": False, "goes to the front": True}.items()
        },
        "jobs of one call replace and reschedule each other": [
            add(once("x", HOUR), once("x", 2 * HOUR, replace=True), once("x", replace=True)),
            add(once("y", HOUR), once("y", 3 * HOUR, reschedule=True), once("y", HOUR, reschedule=True)),
            add(once("z", HOUR), once("z", 0, reschedule=True), once("z", 2 * HOUR, replace=True)),
            step("due", count=3),
            claim(3),
        ],
        "the last job that came while another one was active runs after it": [
            add(once("x", keepLastIfActive=True, ttl=HOUR)),
            claim(1),
            add(once("x", keepLastIfActive=True), once("x", HOUR, keepLastIfActive=True)),
            settle(("fail", "no"), then=1),
            add(once("x", keepLastIfActive=True), once("x", keepLastIfActive=True, replace=True)),
            claim(1),
        ],
        **{
            f"a job whose {state} child is its parent is removed with it, from {removed}": [
                flow("p", [child("c", "main", ignoreDependencyOnFailure=True)]),
                claim(1),
                settle(outcome),
                flow("c", [child("p", "main"), child("d", "other")]),
                managed("remove", removed),
            ]
            for state, outcome, removed in [
                ("failed", ("give up", "x"), "wait"),
                ("failed", ("give up", "x"), "failed"),
                ("completed", DONE, "wait"),
                ("completed", DONE, "completed"),
            ]
        },
        **{
            f"a queue {how}": [add(job(), job(attempts=2, backoff=HOUR)), claim(2), settle(DONE, *outcomes, then=then)]
            for how, outcomes, then in [
                ("is drained when the last job ends", [("give up", "x")], 1),
                ("is drained when the last job ends and none is claimed", [("give up", "x")], 0),
                ("whose last job is delayed is not drained", [("fail", "x")], 0),
                ("with a delayed job is not drained by a claim", [("fail", "x")], 1),
                ("whose last job moves to the delayed ones is not drained", [("delay", HOUR)], 0),
            ]
        },
        "a job that starts in the call that delays a failed one": [
            add(job(attempts=2, backoff=HOUR), job()),
            claim(1),
            settle(("fail", "no"), then=1),
        ],
        "a delayed job that is due is promoted although the rate limit keeps it from starting": [
            add(job(), job(), job(delay=HOUR)),
            step("call", method="setGlobalRateLimit", args=[1, HOUR]),
            claim(1),
            step("due", count=1),
            step("promote_due"),
        ],
    },
    ("bull-4",): {
        **{
            f"removing a {state} job frees its debounce id, whichever job has it": [
                add(debounced("x"), debounced("y", HOUR)),
                claim(1),
                settle(DONE),
                add(debounced("x")),
                *removal,
                add(debounced("x"), debounced("y")),
            ]
            for state, removal in {
                "completed": [managed("remove", "completed")],
                "waiting": [managed("remove", "wait")],
                "cleaned": [step("clean", state="wait", limit=0)],
                "cleaned completed": [step("clean", state="completed", limit=0)],
                "obliterated": [step("obliterate", force=False)],
            }.items()
        },
        "a debounce id whose job was cleaned outlives its obliterated queue": [
            add(job(debounce={"id": "x", "ttl": HOUR}), job(debounce={"id": "y", "ttl": HOUR})),
            claim(1),
            settle(("give up", "x")),
            step("clean", state="failed", limit=0),
            step("obliterate", force=True),
            add(debounced("x"), debounced("y")),
        ],
    },
    ("bull-4", "bullmq"): {
        "a worker that settles after its queue was obliterated leaves jobs with the same ids alone": [
            add(job(), job()),
            claim(2),
            step("obliterate", force=True),
            add(job()),
            settle(("give up", "x"), DONE),
            claim(1),
            settle(DONE, claim=1),
        ],
        "a worker that settles after its queue was obliterated leaves no key": [
            add(job()),
            claim(1),
            step("obliterate", force=True),
            settle(DONE),
        ],
    },
}


RESETS = {"resetAttemptsMade": True, "resetAttemptsStarted": True}
ALL, NAMED = ("bull-1", "bull", "bullmq"), ("bull", "bullmq")


LIMITS = [
    *(step("call", method=f"{verb}GlobalConcurrency", args=args) for verb, args in (("set", [3]), ("remove", []))),
    step("call", method="setGlobalRateLimit", args=[5, HOUR]),
    step("call", method="setGlobalConcurrency", args=[3]),
    step("call", method="removeGlobalRateLimit"),
    step("call", method="rateLimit", args=[HOUR]),
    step("call", method="removeRateLimitKey"),
]
WORKED = [step("work", jobs=[job("log:a row;return:1"), job("log:a row;fail"), job()], failures=1)]
FILLED = [*WORKED, add(job(), job(delay=HOUR), job())]
#: A sequence for each operation of a queue or a job.
OPERATIONS: Sequences = {
    ALL: {
        "pause": [add(*[job()] * 4), step("pause"), add(*[job()] * 2), step("resume")],
        "retry": [step("work", jobs=[job("fail"), job("fail")], failures=2), add(job())]
        + [managed("retry", "failed")] * 2,
        "promote": [add(job(), job(), job(delay=HOUR)), managed("promote", "delayed")],
        "remove": FILLED + [managed("remove", state) for state in ("completed", "failed", "wait", "delayed", "wait")],
        **{
            f"clean {state}": [*FILLED, step("clean", state=state, limit=0)]
            for state in ("completed", "failed", "wait", "delayed")
        },
        "clean no young job": [*WORKED, step("clean", state="completed", limit=0, grace=HOUR)],
        "drain": [*FILLED, step("drain", delayed=True)],
        "remove a job of a paused queue": [add(job(), job()), step("pause"), managed("remove", "any")],
    },
    NAMED: {
        "retry of a job that goes to the end": [
            step("work", jobs=[job("fail", lifo=True)], failures=1),
            add(job()),
            managed("retry", "failed"),
        ],
        "promote by priority": [add(*[job(priority=priority) for priority in (0, 3, 1, 2)] * 2)]
        + [add(*[job(priority=priority, delay=HOUR) for priority in (0, 3, 1, 2)])]
        + [managed("promote", "delayed")] * 4,
        "remove a prioritised job": [add(job(priority=2)), managed("remove", "any")],
        "clean some": [step("work", jobs=[job()] * 4), step("clean", state="completed", limit=3)],
        "obliterate": [*FILLED, add(job(priority=3)), step("obliterate", force=False)],
        "rescue a job until it has stalled too often": [
            add(job(), job()),
            *[claim(1), step("expire", job=0), step("rescue"), step("rescue")] * 2,
            claim(2),
            settle(DONE, DONE),
        ],
        "update": [add(job(), job(delay=HOUR))]
        + [managed("updateData", state, {"n": "ä"}) for state in ("wait", "delayed")],
    },
    ("bull-4", "bullmq"): {
        "retry and promote in a paused queue": [
            step("work", jobs=[job("fail"), job("fail", lifo=True)], failures=2),
            add(job(), job(delay=HOUR), job(delay=HOUR, lifo=True)),
            step("pause"),
            *[managed(verb, state) for verb, state in (("retry", "failed"), ("promote", "delayed")) for _ in range(2)],
        ]
    },
    BULLMQ: {
        "retry of completed and prioritised jobs": [
            step("work", jobs=[job(), job("fail", priority=3)], failures=1),
            managed("retry", "completed", "completed"),
            managed("retry", "failed"),
        ],
        **{
            f"retry from 0 with priority {priority}": [
                step("work", jobs=[job(), job("fail", priority=priority)], failures=1),
                managed("retry", "failed", "failed", RESETS),
                managed("retry", "completed", "completed", RESETS),
            ]
            for priority in (0, 3)
        },
        "remove a parent with its children": [
            flow("p", [child("c", "main"), child("d", "other"), child("e", "other", ignoreDependencyOnFailure=True)]),
            add(job()),
            claim(2, "other"),
            settle(DONE, ("fail", "x")),
            managed("remove", "waiting-children"),
        ],
        "drain with priorities, not the delayed jobs": [*FILLED, add(job(priority=3)), step("drain", delayed=False)],
        "delay": [add(job(delay=HOUR), job(delay=HOUR))]
        + [managed("changeDelay", "delayed", delay) for delay in (0, 2 * HOUR)],
        **{
            f"keep {kept} rows of a log": [
                step("work", jobs=[job("log:a;log:b;log:c")]),
                managed("clearLogs", "completed", *kept),
            ]
            for kept in ([], [2])
        },
        "remove orphans": [
            add(*[job() for _ in range(4)]),
            *(step("redis", command=["LREM", "main:wait", 1, job_id]) for job_id in ("2", "3")),
            step("redis", command=["RPUSH", "main:2:logs", "a row"]),
            step("call", method="removeOrphanedJobs"),
        ],
        **{
            f"prioritize, LIFO {lifo}, {len(paused)} pauses": [
                add(job(), job(), job(priority=3), job(priority=3), job(delay=HOUR)),
                *paused,
                *(
                    managed("changePriority", "any", {"priority": priority, "lifo": lifo}, job=number)
                    for number, priority in ((0, 2), (1, 0), (3, 3), (2, 0), (0, 3), (4, 4))
                ),
            ]
            for lifo in (False, True)
            for paused in ([], [step("pause")])
        },
        "free a deduplication id": [add(once("d")), managed("removeDeduplicationKey", "wait")],
        "remove the job of a deduplication id": [
            add(once("d", keepLastIfActive=True), job()),
            step("redis", command=["SET", "main:dn:d", "next"]),
            managed("remove", "wait"),
        ],
        **{
            f"limits, with {jobs} jobs": [add(*[job(), job(priority=2), job(delay=HOUR)][:jobs]), *LIMITS]
            for jobs in (0, 3)
        },
        **{
            f"remove all children in {queue} by {how}": [flow("p", [child("c", queue), child("d", queue)]), *removal]
            for queue in ("main", "other")
            for how, removal in {
                "remove": [managed("remove", "wait", queue=queue)] * 2,
                "clean": [step("clean", state="wait", limit=0, queue=queue)],
                "drain": [step("drain", delayed=False, queue=queue)],
                "obliterate": [step("obliterate", force=False, queue=queue)],
            }.items()
        },
        **{
            f"retry a {state} child with the rule {rule}": [
                flow("p", [child("c", "main", **({rule: True} if rule else {})), child("d", "other")]),
                claim(1),
                settle(outcome),
                managed("retry", state, state),
            ]
            for state, outcome in (("failed", ("fail", "x")), ("completed", DONE))
            for rule in ("", "ignoreDependencyOnFailure")
        },
    },
}


@pytest.mark.interop
@each_peer_of("bull-1", "bull", "bullmq")
def test_known_sequences_of_steps_leave_the_same_keys_as_with_node(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if each script is sent again, as if its reply had been lost."""
    send_scripts_twice(monkeypatch)
    differing = []
    for packages, named in (*OPERATIONS.items(), *KNOWN_SEQUENCES.items()):
        for name, life in named.items() if steps.peer.among(packages) else ():
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


@pytest.mark.slow
@pytest.mark.interop
@each_peer_of("bull-4", "bullmq")
@pytest.mark.parametrize(
    ("made", "most"),
    [
        (lives_of, STEPS),
        (deduplicated_lives_of, STEPS // 4),
        pytest.param(lives_of, SOAK_STEPS, marks=SOAK),
        # Half of these steps add jobs, four on average.
        pytest.param(deduplicated_lives_of, 5_500, marks=SOAK),
    ],
)
def test_random_sequences_of_steps_leave_the_same_keys_as_with_node(steps: Steps, made: Made, most: int) -> None:
    """Runs sequences until `most` steps were done; shortens a failing one, faster than Hypothesis would."""
    first = int(os.environ.get("SPARK_BULL_LIVES_SEED", SEED if most <= STEPS else randrange(10**9)))
    print(f"seed {first}")
    steps.done = 0
    for number in count(first):
        for life in some_lives(made(steps.peer.dialect), number):
            try:
                steps.live(life)
            except Differs as apart:
                pytest.fail(f"{steps.shortest(life, apart)}\nseed {number}", pytrace=False)
            if steps.done >= most:
                return
