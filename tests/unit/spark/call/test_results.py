"""The columns that a call adds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, StringType, StructType

from spark_bull.core.errors import OptionError
from spark_bull.core.queue.call.caller import Call, CallEnd, Details
from spark_bull.core.queue.call.flight import EndedCall
from spark_bull.spark.call.task import output_schema, parsed, with_outcomes

FAILED = CallEnd(None, "no such address")


def ended(*outcomes: CallEnd) -> list[EndedCall]:
    return [EndedCall(Call(f"call-{row}", 0, "{}", row), outcome) for row, outcome in enumerate(outcomes)]


def test_a_string_is_the_text_of_a_string_or_json() -> None:
    texts = {b'"ada"': "ada", b'""': "", b"null": None, b"": None, b'{"a":1}': '{"a":1}', b"[1, 2]": "[1, 2]"}
    texts |= {b"1.50": "1.50", b"true": "true", b'"\\u00e9"': "\u00e9"}
    texts |= {b'"a\\ud800b"': "a\ufffdb", b'{"a":"\\ud800"}': r'{"a":"\ufffd"}'}
    found = parsed(ended(*(CallEnd(value, None) for value in texts), FAILED), StringType())
    assert found.values.to_pylist() == [*texts.values(), None]
    assert found.errors == [None] * len(texts) + ["no such address"]


def test_values_have_a_type_and_others_are_errors() -> None:
    outcomes = ended(CallEnd(b"[1,2]", None), CallEnd(b'{"a":1}', None), FAILED, CallEnd(b"null", None))
    found = parsed(outcomes, ArrayType(IntegerType()))
    assert found.values.to_pylist() == [[1, 2], None, None, None]
    assert found.errors[0] is found.errors[3] is None
    assert str(found.errors[1]).startswith("return_schema: expected the payload to match the schema list<")
    assert found.errors[2] == "no such address"


@pytest.mark.parametrize("kind", [StringType(), LongType()], ids=str)
def test_a_value_that_is_no_json_is_an_error_that_names_the_job(kind: DataType) -> None:
    for value in (b'{"a":1', b"[" * 100_000, b'"\xff"', b"1" * 10_000):
        found = parsed(ended(CallEnd(b"7", None), CallEnd(value, None)), kind)
        assert found.values.to_pylist() == ["7" if kind == StringType() else 7, None]
        assert found.errors[0] is None
        assert str(found.errors[1]).startswith("expected `returnvalue` of job call-1 to be JSON (")
        assert len(str(found.errors[1])) < 500


def test_outcomes_and_details_are_columns() -> None:
    outcomes = ended(CallEnd(b"7", None, Details(3, 20)), CallEnd(None, "no", Details(1)), FAILED)
    batch = with_outcomes(
        pa.RecordBatch.from_pydict({"n": [1, 2, 3]}), parsed(outcomes, IntegerType()), outcomes, details=True
    )
    assert [(row["attemptsMade"], row["durationMs"]) for row in batch.to_pylist()] == [(3, 20), (1, None), (None, None)]
    assert batch.drop_columns(["attemptsMade", "durationMs"]).to_pylist()[:2] == [
        {"n": 1, "result": 7, "error": None, "jobId": "call-0"},
        {"n": 2, "result": None, "error": "no", "jobId": "call-1"},
    ]
    assert batch.schema.names == output_schema(StructType().add("n", LongType()), IntegerType(), details=True).names


def test_a_column_of_an_outcome_is_taken() -> None:
    for name in ("result", "ERROR", "jobid", "attemptsMade"):
        with pytest.raises(OptionError, match=f"expected no column `{name}`: call"):
            output_schema(StructType().add(name, "string"), StringType(), details=True)
