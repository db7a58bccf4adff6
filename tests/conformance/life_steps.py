"""Hypothesis strategies for the steps of tests/support/steps.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.jobs import HOUR
from tests.support.steps import Step, step
from tests.support.two_sides import QUEUES

Steps = st.SearchStrategy[Step]

#: Hours from now, so that no job becomes due during a test.
HOURS = st.integers(1, 9).map(lambda hours: hours * HOUR)
FEW = st.integers(0, 30)
QUEUE = st.sampled_from([*[QUEUES[0]] * 5, QUEUES[1]])
CUSTOM_IDS = ["a", "b", "c", "dd", "e-1", "e-2"]
VERBS = ["retry", "promote", "remove"]
STATES = ["wait", "active", "delayed", "paused", "prioritized", "completed", "failed"]


def _some(of: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """A random subset of these options."""
    return st.lists(st.sampled_from(sorted(of)), max_size=most, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: of[name] for name in names})
    )


def _keep() -> st.SearchStrategy[Any]:
    return st.sampled_from([True, False, 1, 2, 3, {"count": 2}, {"age": 3600}, {"age": 3600, "count": 1}])


def options(dialect: str) -> dict[str, st.SearchStrategy[Any]]:
    """The options of a job."""
    given: dict[str, st.SearchStrategy[Any]] = {
        "delay": HOURS,
        "priority": st.sampled_from([1, 2, 2, 3, 10]),
        "lifo": st.just(True),
        "jobId": st.sampled_from(CUSTOM_IDS),
        "attempts": st.sampled_from([1, 2, 3]),
        "backoff": st.one_of(HOURS, HOURS.map(lambda delay: {"type": "exponential", "delay": delay}), st.just(0)),
        "removeOnComplete": _keep(),
        "removeOnFail": _keep(),
        "stackTraceLimit": st.sampled_from([0, 1, 2]),
    }
    if dialect == "bullmq":
        given["keepLogs"] = st.integers(1, 2)
    return given


def _jobs(dialect: str, most: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    job = st.builds(
        lambda name, data, opts: {"name": name, "data": data, "opts": opts},
        st.sampled_from(["send", "resize"]),
        st.sampled_from([{}, {"n": 1}, "text"]),
        st.one_of(st.just({}), _some(options(dialect), 3)),
    )
    return st.lists(job, min_size=1, max_size=most)


def _outcome(dialect: str) -> st.SearchStrategy[tuple[str, Any]]:
    values = st.sampled_from([None, 0, "", "done", {"a": [1, "é"]}, False, 1.5])
    reasons = st.sampled_from(["boom", "naïve", 'say "no"'])
    outcomes = [
        st.tuples(st.just("complete"), values),
        st.tuples(st.just("complete"), values),
        st.tuples(st.just("fail"), reasons),
        st.tuples(st.just("fail"), reasons),
        st.tuples(st.just("give up"), reasons),
    ]
    if dialect == "bullmq":
        outcomes += [st.tuples(st.just("delay"), HOURS), st.tuples(st.just("limit"), HOURS)]
        outcomes += [st.tuples(st.just("wait for children"), st.none())]
    return st.one_of(outcomes)


def _step(verb: str, /, **args: st.SearchStrategy[Any]) -> Steps:
    return st.fixed_dictionaries(args).map(lambda given: step(verb, **given))


@st.composite
def lives_of(draw: st.DrawFn, dialect: str) -> list[Step]:
    """Sequences of up to 60 steps. The length is drawn first, since lists of any length would mostly be short."""
    length = draw(st.integers(1, 60))
    return draw(st.lists(steps_of(dialect), min_size=length, max_size=length))


def steps_of(dialect: str) -> Steps:
    """Any step; important steps are more frequent."""
    settle = _step(
        "settle", does=st.lists(_outcome(dialect), min_size=1, max_size=7), claim=FEW, then=st.integers(0, 3)
    )
    weighted = [
        (12, _step("add", jobs=_jobs(dialect, 4), queue=QUEUE)),
        (14, _step("claim", count=st.integers(1, 7), queue=QUEUE)),
        (24, settle),
        (4, _managed("retry", "failed")),
        (4, _managed("promote", "delayed")),
        (2, _managed("remove", *STATES)),
        (3, _step("manage", verb=st.sampled_from(VERBS), state=st.sampled_from(STATES), job=FEW, queue=QUEUE)),
        (2, _managed("retry", "completed", args=st.just(["completed"]))),
        (4, _reported()),
        (4, _step("expire", job=FEW, queue=QUEUE)),
        (5, _step("rescue", queue=QUEUE)),
        (4, _step("due", count=st.integers(1, 3), queue=QUEUE)),
        (3, _step("promote_due", queue=QUEUE)),
        (2, _step("pause", queue=QUEUE)),
        (4, _step("resume", queue=QUEUE)),
        (3, _step("clean", state=st.sampled_from(STATES), limit=st.sampled_from([0, 1, 2]), queue=QUEUE)),
        (1, _step("drain", delayed=st.booleans(), queue=QUEUE)),
        (1, _step("obliterate", force=st.booleans(), queue=QUEUE)),
    ]
    if dialect != "bull-1":
        weighted += [(8, _deduplicated(dialect))]
    if dialect == "bullmq":
        weighted += [(5, _settings()), (8, _flow())]
        weighted += [
            (3, _managed("removeChildDependency", "child")),
            (3, _managed("removeUnprocessedChildren", "parent")),
        ]
    return st.sampled_from([one for weight, one in weighted for _ in range(weight)]).flatmap(lambda one: one)


@st.composite
def deduplicated_lives_of(draw: st.DrawFn, dialect: str) -> list[Step]:
    """Sequences of 60 steps that add jobs with 50 deduplication ids, claim and settle them."""
    jobs = deduplicated_jobs(dialect, [f"id {number}" for number in range(50)], most=30)
    settle = _step(
        "settle", does=st.lists(_outcome(dialect), min_size=1, max_size=9), claim=FEW, then=st.integers(0, 9)
    )
    weighted = [
        (10, _step("add", jobs=jobs)),
        (5, _step("claim", count=st.integers(1, 20))),
        (8, settle),
        (1, _step("due", count=st.integers(1, 9))),
        (1, _step("promote_due")),
        (1, _managed("remove", "delayed", "wait", "completed")),
    ]
    steps = st.sampled_from([one for weight, one in weighted for _ in range(weight)]).flatmap(lambda one: one)
    return draw(st.lists(steps, min_size=60, max_size=60))


def _managed(verb: str, *states: str, **args: st.SearchStrategy[Any]) -> Steps:
    return _step("manage", verb=st.just(verb), state=st.sampled_from(states), job=FEW, queue=QUEUE, **args)


def _settings() -> Steps:
    """Limits of a queue of BullMQ."""
    return st.one_of(
        [
            _step("call", method=st.just(method), args=args, queue=QUEUE)
            for method, args in (
                ("setGlobalConcurrency", st.integers(1, 3).map(lambda most: [most])),
                ("removeGlobalConcurrency", st.just([])),
                ("setGlobalRateLimit", st.integers(1, 4).map(lambda most: [most, HOUR])),
                ("removeGlobalRateLimit", st.just([])),
                ("removeRateLimitKey", st.just([])),
            )
        ]
    )


#: Rules for deduplication ids.
DEDUPLICATION_RULES: list[dict[str, Any]] = [
    {},
    {},
    {"ttl": HOUR},
    {"ttl": HOUR, "extend": True},
    {"extend": True},
    {"replace": True},
    {"ttl": HOUR, "replace": True},
    {"ttl": HOUR, "extend": True, "replace": True},
    {"keepLastIfActive": True},
    {"keepLastIfActive": True, "ttl": HOUR},
    {"keepLastIfActive": True, "ttl": HOUR, "extend": True},
    {"keepLastIfActive": True, "replace": True},
    {"keepLastIfActive": True, "replace": True, "ttl": HOUR},
    {"reschedule": True},
    {"reschedule": True, "ttl": HOUR},
    {"reschedule": True, "ttl": HOUR, "extend": True, "keepLastIfActive": True},
    {"reschedule": True, "replace": True},
]


def deduplicated_jobs(dialect: str, ids: list[str], most: int = 4) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Jobs of which most have one of these deduplication ids."""
    option = "debounce" if dialect == "bull" else "deduplication"
    known = DEDUPLICATION_RULES if dialect == "bullmq" else [rule for rule in DEDUPLICATION_RULES if {*rule} <= {"ttl"}]
    once = st.builds(
        lambda name, rule, opts: {"name": "once", "data": {}, "opts": {**opts, option: {"id": name, **rule}}},
        st.sampled_from(ids),
        st.sampled_from(known),
        st.one_of(st.just({}), HOURS.map(lambda delay: {"delay": delay}), _some(options(dialect), 2)),
    )
    plain = st.just({"name": "plain", "data": {}, "opts": {}})
    return st.lists(st.one_of(once, once, once, plain), min_size=1, max_size=most)


def _deduplicated(dialect: str) -> Steps:
    return _step("add", jobs=deduplicated_jobs(dialect, ["x", "y"]), queue=QUEUE)


ON_FAILURE = [
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
]


def _flow() -> Steps:
    """A tree of jobs; a job whose name exists is not added again, but gets another parent."""
    names = st.sampled_from([f"f{number}" for number in range(12)])

    def node(children: st.SearchStrategy[list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
        return st.builds(
            lambda queue, name, opts, rule, children: {
                "name": "part",
                "queueName": queue,
                "data": {},
                "opts": {**opts, **({rule: True} if rule else {}), "jobId": name},
                "children": children,
            },
            QUEUE,
            names,
            _some({name: of for name, of in options("bullmq").items() if name != "jobId"}, 1),
            st.sampled_from([None, *ON_FAILURE]),
            children,
        )

    leaf = node(st.just([]))
    branch = node(st.lists(leaf, min_size=1, max_size=2))
    return _step("flow", flow=node(st.lists(st.one_of(leaf, branch), min_size=1, max_size=3)))


def _reported() -> Steps:
    def reported(what: str, value: st.SearchStrategy[Any]) -> Steps:
        return _step("report", what=st.just(what), value=value, job=FEW, queue=QUEUE)

    return st.one_of(
        reported("progress", st.sampled_from([50, {"done": 1}])),
        reported("log", st.sampled_from(["one", "two"])),
        reported("data", st.sampled_from([{"new": True}, []])),
    )
