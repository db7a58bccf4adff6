"""Code blocks of a Markdown page, and a process that runs blocks of Python one by one, each in a namespace of its own.

python -m tests.support.snippets FD: takes blocks as lines of JSON on stdin, and answers each with one on descriptor FD.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

from pyspark.sql import SparkSession

from spark_bull.spark.query_start import start_query
from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of a page: its language, its text, and the line where it begins."""

    language: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.language} at line {self.line}"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a Markdown page."""
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in _BLOCK.finditer(text)]


@dataclass(frozen=True)
class Answer:
    """What a block printed, and how it ended: `error` is a traceback, or "interrupted". Its queries have begun."""

    printed: str
    error: str | None


class SnippetRunner:
    """That process, with a Spark session that blocks find as `spark`; started when it is needed."""

    def __init__(self, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._answers = -1

    def start(self, language: str, text: str) -> Running:
        """Begins to run a block of Python or SQL."""
        process = self._process = self._process or self._launch()
        assert process.stdin is not None
        process.stdin.write(json.dumps({"language": language, "text": text}) + "\n")
        process.stdin.flush()
        return Running(self, self._answers)

    def interrupt(self) -> None:
        """Ctrl-C. Then `end`: after a call of the JVM that was cut off PySpark may wait for its answers for ever."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)

    def stop_queries(self) -> None:
        """Stops the queries that the block before has left."""
        self.start("python", "").answer()

    def end(self) -> None:
        """Ends the process with all that it started."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        os.close(self._answers)

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-5_000:]

    def _launch(self) -> subprocess.Popen[str]:
        self._answers, answering = os.pipe()
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.snippets", str(answering)],
                cwd=ROOT,
                env={**os.environ, **self._environment},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                pass_fds=[answering],
                start_new_session=True,
            )
        os.close(answering)
        return process


class Running:
    """A block that runs."""

    def __init__(self, runner: SnippetRunner, answers: int) -> None:
        self._runner = runner
        self._line = b""
        self._reader = Thread(target=self._read, args=(answers,), daemon=True)
        self._reader.start()

    def _read(self, answers: int) -> None:
        while not self._line.endswith(b"\n"):
            if not (piece := os.read(answers, 65_536)):
                return
            self._line += piece

    @property
    def over(self) -> bool:
        return not self._reader.is_alive()

    def answer(self, timeout: float = PATIENCE_S) -> Answer:
        """Waits for the block's end."""
        self._reader.join(timeout)
        assert self.over, f"the block did not end within {timeout:g} s:\n{self._runner.log()}"
        assert self._line, f"the process ended:\n{self._runner.log()}"
        return Answer(**json.loads(self._line))


def main() -> None:
    answers = int(sys.argv[1])
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    for line in sys.stdin:
        # A session of its own knows neither views nor queries of other blocks.
        for query in spark.streams.active:
            query.stop()
        spark = spark.newSession()
        answer = _run(spark, **json.loads(line))
        os.write(answers, json.dumps(answer).encode() + b"\n")


def _run(spark: SparkSession, language: str, text: str) -> dict[str, Any]:
    printed, error = StringIO(), None
    try:
        with redirect_stdout(printed):
            exec(compile(_python(language, text), f"<{language}>", "exec"), {"__name__": "__main__", "spark": spark})
        for query in spark.streams.active:
            start_query(lambda query=query: query)  # type: ignore[misc]
            if not query.isActive and (failed := query.exception()):
                raise failed
    except KeyboardInterrupt:
        error = "interrupted"
    except BaseException:
        error = traceback.format_exc()
    return {"printed": printed.getvalue(), "error": error}


def _python(language: str, text: str) -> str:
    if language == "python":
        return text
    statements = [statement.strip() for statement in text.split(";")]
    return "\n".join(f"spark.sql({statement!r}).show()" for statement in statements if statement)


if __name__ == "__main__":
    main()
