"""The tables of features and of a job's fields; events of Bull."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from itertools import product
from typing import Any, get_args

import pyarrow as pa
import pytest

from spark_bull.core.dialects.base import Dialect
from spark_bull.core.dialects.features import FEATURES, HOLDERS, Feature, FeatureColumn
from spark_bull.core.dialects.fields import CLAIMED_FIELDS, FIELDS, ONLY_OF_JOBS, value_of
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import DialectError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.outcomes import ClaimedJob
from spark_bull.core.model.read_jobs import Job
from spark_bull.core.store.scripts import load
from spark_bull.spark.json.job_columns import column_of

#: The dialects, and the versions of BullMQ, by their columns.
VERSIONS = {
    "bull-1": ("bull-1", ""),
    "bull": ("bull", ""),
    "bullmq-5": ("bullmq", "bullmq:5.81.5"),
    "bullmq-6": ("bullmq", "6"),
}


def test_the_table_has_a_row_for_each_feature_and_a_dialect_for_each_column() -> None:
    assert {*FEATURES} == {*get_args(Feature)}
    assert {*VERSIONS} == {*get_args(FeatureColumn)}
    assert {*HOLDERS} == {row.where for row in FEATURES.values()}
    assert {dialect.column for dialect in DIALECTS.values()} == {"bull-1", "bull", "bullmq-6"}


def test_each_feature_says_who_has_it_and_what_others_lack() -> None:
    for (feature, row), dialect in product(FEATURES.items(), DIALECTS.values()):
        if dialect.has(feature):
            dialect.require(feature, "`x`")
            continue
        lacking = row.lacking.format(dialect=dialect.name)
        assert dialect.name in lacking
        with pytest.raises(DialectError) as said:
            dialect.require(feature)
        assert str(said.value).startswith(f"expected a queue of {row.where}: {lacking}")
        with pytest.raises(DialectError) as said:
            dialect.require(feature, "`x`")
        assert str(said.value).startswith(f"expected no `x`: {lacking}; ")
        assert str(said.value).endswith(f", or use a queue of {row.where}")


def test_versions_of_bullmq_have_their_column() -> None:
    columns = {"": 5, "bullmq:5.81.5": 5, "5": 5, "4.1": 5, "bullmq:6.7.0": 6, "50.1": 6, "10.0": 6, "x": 5}
    assert {version: DIALECTS["bullmq"].column_of(version) for version in columns} == {
        version: f"bullmq-{column}" for version, column in columns.items()
    }


def test_a_job_has_an_attribute_for_every_field_and_a_claimed_one_for_those_that_a_claim_reads() -> None:
    attributes = [field.name for field in fields(Job) if field.name not in ("queue", "id", "state", "run_at")]
    assert attributes == [field.attribute for field in FIELDS.values()]
    assert {"id", *(field.claimed for field in CLAIMED_FIELDS.values())} == set(ClaimedJob._fields)


def test_scripts_know_a_job_by_the_fields_that_the_table_has() -> None:
    source = load("read/jobs").source
    names = re.search(r"\{('timestamp', 'delay'.*?)\}", source, re.DOTALL)
    assert names
    assert set(re.findall(r"'(\w+)'", names[1])) == ONLY_OF_JOBS


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_the_scripts_of_a_dialect_claim_the_fields_that_the_table_has(dialect: Dialect) -> None:
    source = load(dialect.script("work")).source
    names = re.search(r"^local CLAIM_FIELDS = \{(.*?)\}", source, re.DOTALL | re.MULTILINE)
    assert names, f"expected CLAIM_FIELDS in {dialect.script('work')}"
    assert set(re.findall(r"'(\w+)'", names[1])) == set(dialect.claim_fields.values())


def test_the_counter_of_stalls_is_shown_without_the_number_with_which_it_begins() -> None:
    raws = [b"0", b"2", None, b"1000000", b"1000003", b"odd"]
    column = column_of("stalledCounter", pa.array(raws, pa.binary()), pa.int32())
    assert (column.type, column.to_pylist()) == (pa.int32(), [0, 2, 0, 0, 3, 0])
    assert [value_of(FIELDS["stalledCounter"], raw) for raw in raws] == column.to_pylist()


KEYS = QueueKeys("q", "bull")
HALF, SHOWN = "half \ud83c", "half \ufffd"


@pytest.mark.parametrize(
    ("protocol", "channel", "message"),
    [
        ("bull", KEYS.channel("failed"), {"jobId": HALF, "val": HALF}),
        ("bull-1", KEYS.plain_channel("failed"), ["sender", {"opts": {"jobId": HALF}}, {"message": HALF}]),
    ],
)
def test_ids_and_reasons_are_the_texts_of_redis(protocol: str, channel: str, message: Any) -> None:
    event = DIALECTS[protocol].event_of(KEYS, channel, json.dumps(message).encode())
    assert (event.event, event.job_id, event.failed_reason) == ("failed", SHOWN, SHOWN)
