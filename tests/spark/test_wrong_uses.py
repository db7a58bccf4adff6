"""The wrong uses in docs/reference/messages.md end with the lines shown there, below few frames of the package."""

from __future__ import annotations

import re
import shlex
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import spark_bull
from spark_bull import BullQueue, Worker
from spark_bull.ops.cli.main import main
from spark_bull.spark.platform.requirements import start_query
from tests.support.examples import give_address

ROOT = Path(__file__).parents[2]
PACKAGE = str(Path(spark_bull.__file__).parent)
MAX_FRAMES = 3
#: What Spark adds below the line of an error.
ADDED = re.compile(r" ?SQLSTATE: .*|=== Streaming Query ===")


def table() -> list[tuple[str, str]]:
    """What one writes, and what one sees, of the table of wrong uses."""
    _, _, text = (ROOT / "docs/reference/messages.md").read_text("utf-8").partition("## Wrong uses\n")
    rows = re.findall(r"^\| (`+)(.+?)\1 \| (`+)(.+?)\3 \|$", text, re.MULTILINE)
    return [(written, seen) for _, written, _, seen in rows]


def last_line(error: BaseException) -> str:
    """The last line of a printed error, without what Spark adds below it; checks how much of the package it shows."""
    lines = [line for line in "".join(traceback.format_exception(error)).splitlines() if line.strip()]
    assert sum(PACKAGE in line for line in lines) <= MAX_FRAMES, "\n".join(lines)
    end = next((number for number, line in enumerate(lines) if ADDED.fullmatch(line)), len(lines))
    return lines[end - 1]


@pytest.fixture
def seen(
    spark: SparkSession,
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[str], str]:
    """Does what one writes, and returns the last line that one sees."""
    give_address(monkeypatch, redis_url)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    session = spark.newSession()

    def collected(**options: str) -> None:
        jobs = session.readStream.format("bull").options(**options).load()
        writer = jobs.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        start_query(writer.start).awaitTermination()

    names = {
        "spark": session,
        "jobs": session.createDataFrame([("ada@example.org", 1)], "to STRING, n INT"),
        "collected": collected,
        "BullQueue": BullQueue,
        "Worker": Worker,
        "threading": threading,
        "udf": udf,
    }

    def seen(written: str) -> str:
        if written.startswith("spark-bull "):
            assert main(shlex.split(written)[1:]) == 2
            return capsys.readouterr().err.splitlines()[-1]
        with pytest.raises(Exception) as raised:  # noqa: PT011
            exec(written, dict(names))
        return last_line(raised.value)

    return seen


def test_each_wrong_use_ends_with_the_line_of_the_page(seen: Callable[[str], str]) -> None:
    written = " ".join(one for one, _ in table())
    assert all(part in written for part in ("write", "read", "collected", "Worker", "BullQueue", "spark-bull"))
    found = {(one, line): seen(one) for one, line in table()}
    patterns = {line: ".*".join(map(re.escape, line.split("…"))) for _, line in found}
    assert {one: last for (one, line), last in found.items() if not re.fullmatch(patterns[line], last)} == {}
