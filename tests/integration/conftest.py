"""The command, in the process of the test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_bull.ops.cli import main


class Run:
    """`run("counts", "mail")` runs the command with a Redis and a prefix, and returns what it has printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], url: str, prefix: str) -> None:
        self.common = ("--url", url, "--prefix", prefix)
        self._capsys = capsys

    def __call__(self, *argv: str, code: int = 0) -> str:
        """The errors, if the exit status is to be another one than 0, and there are some."""
        assert main([*self.common, *argv]) == code
        shown = self._capsys.readouterr()
        return shown.err if code and shown.err else shown.out

    def data(self, *argv: str, code: int = 0) -> Any:
        """The values that it prints as JSON."""
        assert main([*self.common, *argv, "--json"]) == code
        return json.loads(self._capsys.readouterr().out)


@pytest.fixture
def run(redis_url: str, prefix: str, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys, redis_url, prefix)
