"""The table of features."""

from __future__ import annotations

from typing import get_args

import pytest

from spark_bull.dialects.features import FEATURES, HOLDERS, Feature, FeatureColumn, Support
from spark_bull.dialects.registry import DIALECTS
from spark_bull.errors import DialectError

COLUMNS = get_args(FeatureColumn)
#: The dialects, and the versions of BullMQ, by their columns.
VERSIONS = {
    "bull-1": ("bull-1", ""),
    "bull": ("bull", ""),
    "bullmq-5": ("bullmq", "bullmq:5.81.5"),
    "bullmq-6": ("bullmq", "6"),
}
#: What each column has, in the order of the columns: 1 for yes.
TABLE = {
    "ageing": "0011",
    "classic-cron": "0110",
    "custom-events": "0011",
    "deduplication": "0111",
    "event-stream": "0011",
    "failed-attempt-events": "1000",
    "finish-times": "0111",
    "flows": "0011",
    "integer-ids": "1100",
    "interval-offsets": "0011",
    "interval-starts": "0011",
    "jitter": "0011",
    "keep-rules": "0111",
    "limiter-delays": "0100",
    "limiter-groups": "0100",
    "metrics": "0111",
    "paused-list": "1110",
    "priorities": "0111",
    "priority-queues": "1000",
    "queue-limits": "0011",
    "retry-at-limit": "0010",
    "scheduler-hashes": "0011",
    "schedulers": "0111",
    "start-limits": "0011",
    "telemetry": "0011",
    "worker-names": "0011",
}


def test_each_dialect_and_version_has_the_features_of_its_column() -> None:
    assert {name for name, _ in VERSIONS.values()} == {*DIALECTS}
    found = {
        feature: "".join(str(int(DIALECTS[name].has(feature, version))) for name, version in VERSIONS.values())
        for feature in FEATURES
    }
    assert found == TABLE


def test_the_table_has_a_row_for_each_feature_and_a_dialect_for_each_column() -> None:
    assert {*FEATURES} == {*get_args(Feature)}
    assert {*VERSIONS} == {*COLUMNS}
    assert {*HOLDERS} == {row.where for row in FEATURES.values()}
    assert {dialect.column for dialect in DIALECTS.values()} == {"bull-1", "bull", "bullmq-6"}


@pytest.mark.parametrize(("feature", "row"), FEATURES.items(), ids=[*FEATURES])
def test_each_feature_says_who_has_it_and_what_others_lack(feature: Feature, row: Support) -> None:
    for dialect in DIALECTS.values():
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


@pytest.mark.parametrize(
    ("version", "column"),
    [("", 5), ("bullmq:5.81.5", 5), ("5", 5), ("4.1", 5), ("bullmq:6.7.0", 6), ("50.1", 6), ("10.0", 6), ("x", 5)],
)
def test_versions_of_bullmq_have_their_column(version: str, column: int) -> None:
    assert DIALECTS["bullmq"].column_of(version) == f"bullmq-{column}"
