"""Writes of jobs that depend on each other (`dependsOn`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spark_bull.core.errors import DialectError, OptionError
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import recover
from spark_bull.core.queue.dispatch.write_records import Identity
from spark_bull.core.queue.work.verbs import promote_due
from spark_bull.run.services.promoter import Promoter
from tests.support.job_order import ROWS, graph_sink, rows_of
from tests.support.wait import wait_until
from tests.support.without_spark import Sink
from tests.support.work_bench import WorkBench, completed, only_bullmq, options_of
from tests.support.worker import OurWorker

pytestmark = only_bullmq

DIAMOND = {"last": ["left", "right"], "left": ["first"], "first": [], "right": ["first"], "alone": None}


def write(bench: WorkBench, graph: Mapping[str, Any], **given: str) -> None:
    graph_sink(options_of(bench.queue) | given, rows_of(graph)).commit()


def relay_keys(bench: WorkBench) -> list[bytes]:
    return sorted(bench.client.scan_iter(match=f"{bench.handle.keys['relays']}*"))


def test_a_job_runs_after_all_that_it_depends_on(bench: WorkBench) -> None:
    write(bench, DIAMOND)
    assert bench.counts() == {"wait": 2, "waiting-children": 3}
    (record,) = bench.queue.writes()
    assert (record.state, record.jobs, record.done, record.added) == ("finished", 5, 5, 5)
    claim = bench.claim()
    assert sorted(job.id for job in claim.jobs) == ["alone", "first"]
    bench.work(completed(claim, "7"))
    assert bench.counts() == {"completed": 2, "waiting-children": 3}
    promote_due(bench.handle)
    assert relay_keys(bench) == []
    first = bench.handle.keys.job("first").encode()
    claim = bench.claim()
    assert sorted(job.id for job in claim.jobs) == ["left", "right"]
    assert bench.client.hgetall(bench.handle.keys.children_values("left")) == {first: b"7"}
    bench.work(completed(claim))
    # The one job that depends on others is their parent.
    claim = bench.claim()
    assert [job.id for job in claim.jobs] == ["last"]
    bench.work(completed(claim))
    assert bench.counts() == {"completed": 5}


def test_a_job_that_is_removed_counts_as_ended(bench: WorkBench) -> None:
    write(bench, {"a": [], "b": ["a"], "c": ["a"]})
    bench.queue.remove("a")
    promote_due(bench.handle)
    assert bench.counts() == {"wait": 2}
    assert relay_keys(bench) == []


def test_obliterate_removes_jobs_that_depend_on_others(bench: WorkBench) -> None:
    count = 450
    last = {"last": [f"b{n}" for n in range(count)], "after": ["last"], "end": ["last", "after"]}
    write(bench, {"done": [], "c": ["done"], "d": ["done"], "e": ["c", "d"]})
    write(bench, {"a": [], **{f"b{n}": ["a"] for n in range(count)}, **last})
    bench.work(completed(bench.claim(1)))
    bench.queue.obliterate(force=True)
    assert bench.public() == {}
    assert relay_keys(bench) == []


@pytest.mark.parametrize("verb", ["drain", "clean"])
@pytest.mark.parametrize("second", [["a"], ["a", "held"]], ids=["alone", "and another"])
def test_jobs_that_are_drained_or_cleaned_take_along_those_that_wait_for_them_alone(
    bench: WorkBench, verb: str, second: list[str]
) -> None:
    write(bench, {"held": [], "a": [], "b": ["a"], "c": second, "d": ["b"], "e": ["d", "b"], "f": ["held"]})
    claim = bench.claim(1)
    if verb == "drain":
        bench.queue.drain()
    else:
        bench.queue.clean(state="wait")
    promote_due(bench.handle)
    left = {"f", *(["c"] if "held" in second else [])}
    assert bench.counts() == {"active": 1, "waiting-children": len(left)}
    bench.work(completed(claim))
    promote_due(bench.handle)
    assert {job.id for job in bench.claim().jobs} == left
    assert relay_keys(bench) == []


def test_priorities_and_delays_count_when_a_job_is_released(bench: WorkBench) -> None:
    write(bench, {"a": [], "b": ["a"]}, priority="3", delay="1000000")
    assert bench.counts() == {"delayed": 1, "waiting-children": 1}
    bench.queue.promote("a")
    assert bench.counts() == {"prioritized": 1, "waiting-children": 1}


def test_many_dependents_are_told_in_several_calls(bench: WorkBench) -> None:
    count = 1_200
    write(bench, {"a": [], **{f"b{n}": ["a"] for n in range(count)}, "c": [f"b{n}" for n in range(count)]})
    bench.work(completed(bench.claim(1)))
    with Promoter(queues=["q"], **{name: options_of(bench.queue)[name] for name in ("url", "prefix")}) as promoter:
        wait_until(lambda: bench.counts().get("wait") == count, "all dependents to be released")
        with OurWorker(bench.handle, lambda job: None, chunk_size=100):
            wait_until(lambda: bench.counts() == {"completed": count + 2}, "all jobs to complete")
    assert promoter.done.failed == 0
    assert relay_keys(bench) == []


def test_a_write_that_was_only_registered_is_finished_by_anyone(bench: WorkBench) -> None:
    sink = graph_sink(options_of(bench.queue), rows_of(DIAMOND))
    written = sink.messages
    for feature in sink.plan.features:
        written = feature.committing(sink.plan, written)
    register(sink.plan.write_id_in(written), sink.plan.queue_plans(written), None)
    assert bench.counts() == {}
    recover(bench.handle)
    assert bench.counts() == {"wait": 2, "waiting-children": 3}


def test_a_write_with_an_identity_is_repeated_without_effect(bench: WorkBench) -> None:
    for _ in range(2):
        write(bench, DIAMOND, txnAppId="app", txnVersion="1")
        assert bench.counts() == {"wait": 2, "waiting-children": 3}
    with pytest.raises(OptionError, match=r"expected jobs with `dependsOn` to be new, but queue q has a job 'last'"):
        write(bench, DIAMOND)
    assert bench.counts() == {"wait": 2, "waiting-children": 3}


def test_each_micro_batch_is_a_graph_and_is_written_once(bench: WorkBench) -> None:
    for number, replays in ((0, 1), (1, 2)):
        for _ in range(replays):
            sink = Sink(options_of(bench.queue), ROWS, Identity("query", number))
            sink.task(rows_of({f"a{number}": [], f"b{number}": [f"a{number}"], f"c{number}": [f"a{number}"]}))
            sink.commit()
    assert bench.counts() == {"wait": 2, "waiting-children": 4}
    sink = Sink(options_of(bench.queue), ROWS, Identity("query", 2))
    sink.task(rows_of({"d": ["a0"]}))
    with pytest.raises(OptionError, match="ids of jobs of the same write, got: 'a0'"):
        sink.commit()


LONG = {f"j{n}": [f"j{n - 1}"] if n else [] for n in range(1_001)}
WRONG: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}, {}, "without a cycle, got: .* depends on "),
    ({"a": ["a"]}, {}, "without a cycle, got: a depends on a"),
    ({"a": ["x"]}, {}, "`dependsOn` of job 'a' to have ids of jobs of the same write, got: 'x'"),
    (LONG, {}, "at most 1,000 jobs that depend on each other in a row, got 1,001"),
    ({"a": [None]}, {}, "row 0: expected `dependsOn` to have ids of jobs, got NULL"),
    ({"a": []}, {"delivery": "at-least-once"}, "`delivery` to be exactly-once with a column `dependsOn`"),
    ({"a": []}, {"maxLength": "5"}, "expected one of `dependsOn` and `maxLength`, got both"),
    ({"a": []}, {"onFinish": '{"queue": "b"}'}, "expected one of `dependsOn` and `onFinish`, got both"),
    ({"a": []}, {"onFailure": "continue"}, "`onFailure` to be one of wait, fail, ignore, remove"),
]


def test_wrong_graphs_are_refused_and_nothing_is_written(bench: WorkBench) -> None:
    for graph, given, message in WRONG:
        with pytest.raises(OptionError, match=message):
            write(bench, graph, **given)
    rows = rows_of({"a": []})
    with pytest.raises(OptionError, match="expected each `jobId` once in a write with `dependsOn`, got two jobs 'a'"):
        graph_sink(options_of(bench.queue), [*rows, *rows]).commit()
    with pytest.raises(OptionError, match="row 0: expected a `jobId` with a column `dependsOn`, got NULL"):
        graph_sink(options_of(bench.queue), [{**rows[0], "jobId": None}])
    with pytest.raises(DialectError):
        graph_sink(options_of(bench.queue) | {"protocol": "bull"}, rows)
    assert not [key for key in bench.client.scan_iter(match=f"{bench.handle.keys.base}*") if b"spark:stage" not in key]
