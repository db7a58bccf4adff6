"""Graphs of jobs, chunks of rows, percentiles of durations, and options of claimed jobs, for any input."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from hypothesis import strategies as st

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import OptionError
from spark_bull.core.model.job_json import parsed_opts
from spark_bull.core.queue.call.caller import MOST_BYTES, chunks
from spark_bull.core.queue.monitor.stats import percentiles
from spark_bull.core.queue.work.claim import ClaimedChunk
from spark_bull.spark.dispatch.features.order import MAX_DEPTH, graph_of

DEPENDENCIES = some.lists(some.lists(some.integers(0, 7), max_size=4), min_size=8, max_size=8)


@given(DEPENDENCIES)
def test_a_graph_is_taken_or_a_cycle_of_it_is_named(numbers: list[list[int]]) -> None:
    rows = [(f"j{n}", [f"j{other}" for other in others]) for n, others in enumerate(numbers)]
    left = {job_id: set(others) for job_id, others in rows}
    while ready := [job_id for job_id, others in left.items() if not others & left.keys()]:
        for job_id in ready:
            del left[job_id]
    if not left:
        assert graph_of(rows) == {job_id: [*dict.fromkeys(others)] for job_id, others in rows}
        return
    with pytest.raises(OptionError, match="without a cycle") as error:
        graph_of(rows)
    cycle = re.findall(r"j\d", str(error.value))
    assert cycle[0] == cycle[-1]
    assert all(other in dict(rows)[job_id] for job_id, other in pairwise(cycle))


def test_a_long_cycle_is_shown_by_its_first_ids() -> None:
    rows = [(f"j{n}", [f"j{(n + 1) % 50}"]) for n in range(50)]
    with pytest.raises(OptionError, match=r"j7 depends on … depends on j0$"):
        graph_of(rows)


def test_a_row_of_jobs_may_be_as_long_as_the_bound() -> None:
    rows = [(f"j{n}", [f"j{n - 1}"] if n else []) for n in range(MAX_DEPTH)]
    assert len(graph_of(rows)) == MAX_DEPTH


@given(sizes=st.lists(st.integers(0, 700_000), max_size=30), most=st.integers(1, 5))
def test_each_row_is_in_one_chunk_within_the_limits(sizes: list[int], most: int) -> None:
    texts = ["x" * size for size in sizes]
    found = list(chunks(texts, most))
    assert [row for start, stop in found for row in range(start, stop)] == list(range(len(texts)))
    for start, stop in found:
        assert 1 <= stop - start <= most
        assert stop - start == 1 or sum(sizes[start:stop]) <= MOST_BYTES


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=400))
def test_percentiles_are_those_of_pandas(durations: list[int]) -> None:
    found = percentiles(durations)
    of_pandas = pd.Series(durations).quantile([0.5, 0.95, 0.99])
    assert [found.p50, found.p95, found.p99] == pytest.approx(list(of_pandas))


DIALECT = DIALECTS["bullmq"]
IDS = st.one_of(st.text(max_size=3), st.sampled_from(["1", "a-1", '"', '","b":"', "\\", 'a"}', "\n", "é", ""]))
#: Parts of texts; %s stands for the id as it is, %r for its JSON text.
PARTS = (*'{}[]"\\,:', "%s", "%r", '"jobId":%r', '"jobId":"%s"', '\\"jobId":"%s"', "{}", '"a":1')
TEXTS = st.one_of(
    st.sampled_from(
        ["", "{}", "[]", '{"jobId":%r}', '{"attempts":3,"jobId":%r}', '{"jobId":"%s"}', '{"a":"\\"jobId":%r}']
    ),
    st.lists(st.sampled_from(PARTS), max_size=8).map("".join),
    st.lists(st.sampled_from(PARTS), max_size=6).map(lambda parts: "{" + "".join(parts) + "}"),
)


@given(st.lists(st.tuples(IDS, TEXTS), min_size=1, max_size=6))
@example([('","b":"', '{"jobId":"%s"}'), ('"', '{"jobId":"%s"}')])
@example([("1", '{"jobId":%r}'), ("2", '{"jobId":%r}}')])
def test_options_that_are_no_object_are_found(rows: list[tuple[str, str]]) -> None:
    ids = [job_id for job_id, _ in rows]
    opts = [text.replace("%r", json.dumps(job_id, ensure_ascii=False)).replace("%s", job_id) for job_id, text in rows]
    columns = dict.fromkeys(DIALECT.claim_fields.values(), False)
    jobs = ClaimedChunk(ids, columns | {"opts": opts}).jobs(DIALECT)
    damaged = [job.deferred_failure is not None for job in jobs]
    assert damaged == [parsed_opts(text) is None for text in opts]
    for job, text in zip(jobs, opts, strict=True):
        assert job.opts == text or not text
        if job.deferred_failure:
            assert job.deferred_failure.startswith(
                f"expected `opts` of job {job.id} to be a JSON object, got: {text!r}"
            )
