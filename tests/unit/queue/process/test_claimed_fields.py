"""Jobs whose options are no JSON object are damaged, whatever ids the options have."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from spark_bull.dialects.registry import DIALECTS
from spark_bull.model.job_json import parsed_opts
from spark_bull.queue.process.claimed_fields import ClaimedChunk

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
