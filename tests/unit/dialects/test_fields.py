"""The table of a job's fields: objects, schemas and Lua agree with it."""

from __future__ import annotations

import re
from dataclasses import fields

import pyarrow as pa
import pytest

from spark_bull.dialects.base import Dialect
from spark_bull.dialects.fields import CLAIMED_FIELDS, FIELDS, ONLY_OF_JOBS, value_of
from spark_bull.dialects.registry import DIALECTS
from spark_bull.model.jobs import Job
from spark_bull.model.outcomes import ClaimedJob
from spark_bull.spark.json.job_columns import column_of
from spark_bull.spark.schemas import CLAIM_SCHEMA, SCHEMAS
from spark_bull.store.scripts import load


def test_a_job_has_an_attribute_for_every_field() -> None:
    attributes = [field.name for field in fields(Job) if field.name not in ("queue", "id", "state", "run_at")]
    assert attributes == [field.attribute for field in FIELDS.values()]


def test_a_claimed_job_has_an_attribute_for_every_field_that_a_claim_reads() -> None:
    assert {"id", *(field.claimed for field in CLAIMED_FIELDS.values())} == set(ClaimedJob._fields)


def test_scripts_know_a_job_by_the_fields_that_the_table_has() -> None:
    source = load("read/jobs").source
    names = re.search(r"\{('timestamp', 'delay'.*?)\}", source, re.DOTALL)
    assert names
    assert set(re.findall(r"'(\w+)'", names[1])) == ONLY_OF_JOBS


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_the_scripts_of_a_dialect_claim_the_fields_that_the_table_has(dialect: Dialect) -> None:
    source = load(dialect.script("work")).source.partition(": CLAIM_FIELDS\n")[2]
    names = re.search(r"^lib\[\d+\] = \{(.*?)\}", source, re.DOTALL | re.MULTILINE)
    assert names, f"expected CLAIM_FIELDS in {dialect.script('work')}"
    assert set(re.findall(r"'(\w+)'", names[1])) == set(dialect.claim_fields.values())


def test_the_views_have_the_columns_that_the_documentation_names() -> None:
    assert SCHEMAS["jobs"].simpleString() == (
        "struct<queue:string,id:string,state:string,name:string,data:string,opts:string,progress:string,"
        "returnvalue:string,failedReason:string,stacktrace:array<string>,attemptsMade:int,attemptsStarted:int,"
        "stalledCounter:int,returnedCounter:int,timestamp:timestamp,processedOn:timestamp,finishedOn:timestamp,delay:bigint,"
        "runAt:timestamp,priority:bigint,processedBy:string,parentKey:string,deduplicationId:string,"
        "repeatJobKey:string>"
    )
    assert CLAIM_SCHEMA.simpleString() == (
        "struct<queue:string,id:string,token:string,name:string,data:string,opts:string,timestamp:timestamp,"
        "attemptsMade:int,attemptsStarted:int,stalledCounter:int,priority:bigint,progress:string,parentKey:string,"
        "deferredFailure:string>"
    )


def test_the_counter_of_stalls_is_shown_without_the_number_with_which_it_begins() -> None:
    raws = [b"0", b"2", None, b"1000000", b"1000003", b"odd"]
    column = column_of("stalledCounter", pa.array(raws, pa.binary()), pa.int32())
    assert (column.type, column.to_pylist()) == (pa.int32(), [0, 2, 0, 0, 3, 0])
    assert [value_of(FIELDS["stalledCounter"], raw) for raw in raws] == column.to_pylist()
