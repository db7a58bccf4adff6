"""Hypothesis: steps of the life of a queue, for tests/support/lives.py."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.jobs import HOUR
from tests.support.lives import QUEUES, Step, step

Steps = st.SearchStrategy[Step]

#: Hours from now; a job is never due by itself.
HOURS = st.integers(1, 9).map(lambda hours: hours * HOUR)
WIDE = False
FEW = st.integers(0, 30)
QUEUE = st.sampled_from([*[QUEUES[0]] * 5, QUEUES[1]])
CUSTOM_IDS = ["a", "b", "c", "dd", "e-1", "e-2"]
STATES = ["wait", "active", "delayed", "paused", "prioritized", "completed", "failed"]


def _some(of: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """A few of these options: each job has its own mixture."""
    return st.lists(st.sampled_from(sorted(of)), max_size=most, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: of[name] for name in names})
    )


def _keep() -> st.SearchStrategy[Any]:
    return st.sampled_from([True, False, 1, 2, 3, {"count": 2}, {"age": 3600}, {"age": 3600, "count": 1}])


def options(dialect: str) -> dict[str, st.SearchStrategy[Any]]:
    """What a job may ask for."""
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
        outcomes += [st.tuples(st.just("delay"), HOURS)]  # LATER limit
    return st.one_of(outcomes)


def _step(verb: str, /, **args: st.SearchStrategy[Any]) -> Steps:
    return st.fixed_dictionaries(args).map(lambda given: step(verb, **given))


@st.composite
def lives_of(draw: st.DrawFn, dialect: str) -> list[Step]:
    """Lives of up to 60 steps. Their number comes first: lists of any length would be short mostly."""
    length = draw(st.integers(1, 60))
    return draw(st.lists(steps_of(dialect), min_size=length, max_size=length))


def steps_of(dialect: str) -> Steps:
    """Any step, those that make most of a life more often than the others."""
    outcome = _outcome(dialect)
    add = _step("add", jobs=_jobs(dialect, 4), queue=QUEUE)
    claim = _step("claim", count=st.integers(1, 7), queue=QUEUE)
    settle = _step("settle", does=st.lists(outcome, min_size=1, max_size=7), claim=FEW, then=st.integers(0, 3))
    manage = _step("manage", verb=st.sampled_from(["retry", "promote", "remove"]), state=_state(), job=FEW, queue=QUEUE)
    only_bullmq = [_settings(), _deduplicated(), _flow(), _flow()] if dialect == "bullmq" and WIDE else []
    return st.one_of(
        *only_bullmq,
        add,
        add,
        claim,
        claim,
        settle,
        settle,
        settle,
        manage,
        _step("manage", verb=st.just("retry"), state=st.just("failed"), job=FEW, queue=QUEUE),
        _step("manage", verb=st.just("promote"), state=st.just("delayed"), job=FEW, queue=QUEUE),
        _step("manage", verb=st.just("remove"), state=_state(), job=FEW, queue=QUEUE),
        _step("retry_completed", job=FEW, queue=QUEUE),
        _told(),
        _step("expire", job=FEW, queue=QUEUE),
        _step("rescue", queue=QUEUE),
        _step("due", count=st.integers(1, 3), queue=QUEUE),
        _step("promote_due", queue=QUEUE),
        _step("pause", queue=QUEUE),
        _step("resume", queue=QUEUE),
        _step("resume", queue=QUEUE),
        _step("clean", state=_state(), limit=st.sampled_from([0, 1, 2]), queue=QUEUE),
        st.one_of(
            _step("drain", delayed=st.booleans(), queue=QUEUE),
            _step("obliterate", force=st.booleans(), queue=QUEUE),
        ),
    )


def _settings() -> Steps:
    """Settings of a queue of BullMQ that only Node can change."""
    return st.one_of(
        [
            _step("set", method=st.just(method), args=args, queue=QUEUE)
            for method, args in (
                ("setGlobalConcurrency", st.integers(1, 3).map(lambda most: [most])),
                ("removeGlobalConcurrency", st.just([])),
                ("setGlobalRateLimit", st.integers(1, 4).map(lambda most: [most, HOUR])),
                ("removeGlobalRateLimit", st.just([])),
                ("removeRateLimitKey", st.just([])),
            )
        ]
    )


def _deduplicated() -> Steps:
    """A job that is added only if no other one has its deduplication id."""
    rule = st.one_of(
        st.just({}),
        st.just({"ttl": HOUR}),
        st.just({"ttl": HOUR, "extend": True}),
        st.just({"ttl": HOUR, "extend": True, "replace": True}),
        st.just({"replace": True}),
        st.just({"keepLastIfActive": True}),
    )
    job = st.builds(
        lambda name, rule, opts: {"name": "once", "data": {}, "opts": {**opts, "deduplication": {"id": name, **rule}}},
        st.sampled_from(["x", "y"]),
        rule,
        _some({name: of for name, of in options("bullmq").items() if name != "jobId"}, 2),
    )
    return _step("add_by_node", jobs=st.lists(job, min_size=1, max_size=3), queue=QUEUE)


ON_FAILURE = [
    "failParentOnFailure",
    "continueParentOnFailure",
    "ignoreDependencyOnFailure",
    "removeDependencyOnFailure",
]


def _flow() -> Steps:
    """A tree of jobs; a name that is in use is not added again, and gets another parent."""
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


def _state() -> st.SearchStrategy[str]:
    return st.sampled_from(STATES)


def _told() -> Steps:
    def told(what: str, value: st.SearchStrategy[Any]) -> Steps:
        return _step("tell", what=st.just(what), value=value, job=FEW, queue=QUEUE)

    return st.one_of(
        told("progress", st.sampled_from([50, {"done": 1}])),
        told("log", st.sampled_from(["one", "two"])),
        told("data", st.sampled_from([{"new": True}, []])),
    )
