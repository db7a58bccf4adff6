"""Changes of jobs: the file with their outcomes, and the option that is the default of a column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StringType, StructType

from spark_bull.core.errors import OptionError
from spark_bull.core.model.read_jobs import Changed
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import ManageOptions
from spark_bull.spark.manage import check_path, plan_rows, write_outcomes


def test_a_file_has_the_outcomes_and_is_replaced_by_a_repetition(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "outcomes")
    check_path(path)
    for outcome in ("missing", "done"):
        name = write_outcomes(path, "w", [("mail", Changed("1", "retry", outcome))])
    assert [file.name for file in Path(path).iterdir()] == ["w.parquet"]
    assert pq.read_table(name).to_pylist() == [{"queue": "mail", "id": "1", "action": "retry", "outcome": "done"}]


@pytest.mark.parametrize(
    "path", ["foo://ada:s3cr3t@host/x", "s3://ada:s3cr3t@b/x?scheme=s3cr3t", "s3://ada:s3cr3t @b/x"]
)
def test_an_error_shows_no_keys_of_a_uri(path: str) -> None:
    with pytest.raises(OptionError, match="expected `resultPath` to be") as raised:
        check_path(path)
    assert "s3cr3t" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "s3cr3t" not in repr(parse_options({"resultPath": path}, ManageOptions))


def test_an_empty_path_and_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="expected `resultPath` to be a directory, got an empty text"):
        check_path("")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(OptionError, match="expected `resultPath` to be a directory that can be written, got"):
        check_path(str(file / "x"))


def test_the_option_of_a_change_stands_in_for_a_null() -> None:
    options = parse_options({"queue": "q", "mode": "manage", "action": "retry"}, ManageOptions)
    plan = plan_rows(StructType().add("id", StringType()).add("action", StringType()), options)
    rows = plan.rows(pa.RecordBatch.from_pydict({"id": ["1", "2"], "action": ["remove", None]}), (0, 1))
    assert rows == {"id": ["1", "2"], "action": ["remove", "retry"]}
