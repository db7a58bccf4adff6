"""Every block of Python or SQL of README and docs runs as printed, alone; only the address of Redis and the folders are
replaced. test_readme_commands.py runs the other blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.spark.platform.requirements import MAX_ATTEMPTS, is_late, start_query
from tests.support.examples import (
    SHOWN_FOLDER,
    SHOWN_URL,
    Block,
    case_of,
    give_address,
    is_done,
    missing_in,
    of,
    prepare,
)
from tests.support.wait import wait_until


@pytest.fixture
def session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """A new session, without the views, data sources and queries of other tests."""
    session = spark.newSession()
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    yield session
    stop_queries(session)


@of("python", "sql")
def test_a_block_of_python_or_sql_runs_alone(
    session: SparkSession,
    server: EmbeddedRedis,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    block: Block,
) -> None:
    case = case_of(block)
    if SHOWN_URL not in block.text and "shardUrls" not in block.text:
        give_address(monkeypatch, server.url)
    text = block.text.replace(SHOWN_URL, server.url).replace(SHOWN_FOLDER, f"{tmp_path}/")
    text = f"{python_of(block.language, text)}\n{case.caller}"
    program = compile(text, str(block), "exec")

    def done() -> bool:
        return is_done(case, server.url, tmp_path)

    for _ in range(MAX_ATTEMPTS):
        prepare(case, server.url)
        if run(program, session, done):
            break
    assert not (missing := missing_in(printed := capsys.readouterr().out, case)), f"{missing} in:\n{printed}"


def python_of(language: str, text: str) -> str:
    if language == "python":
        return text
    statements = [statement.strip() for statement in text.split(";")]
    return "\n".join(f"spark.sql({statement!r}).show()" for statement in statements if statement)


def run(program: CodeType, session: SparkSession, done: Callable[[], bool]) -> bool:
    """Runs a block and waits until `done` is true; returns False if a streaming source of it connected too late."""
    namespace: dict[str, Any] = {"__name__": "__main__", "spark": session}
    try:
        exec(program, namespace)
        queries = session.streams.active
        for query in queries:
            start_query(lambda query=query: query)

        def is_over() -> bool:
            for query in queries:
                if error := query.exception():
                    raise error
            return done()

        wait_until(is_over, "the effects of the block")
    except StreamingQueryException as error:
        if is_late(error):
            return False
        raise
    finally:
        stop_queries(session)
    return True


def stop_queries(session: SparkSession) -> None:
    for query in session.streams.active:
        query.stop()
