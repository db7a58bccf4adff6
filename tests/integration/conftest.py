"""A queue, the command in the process of the test, and the server of the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue
from spark_bull.ops.cli import main
from tests.support.web import Web, serving
from tests.support.work_bench import WorkBench


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
def place(redis_url: str, prefix: str) -> dict[str, Any]:
    """The options by which services, pages and queries reach the queues of the test."""
    return {"url": redis_url, "prefix": prefix}


@pytest.fixture
def run(redis_url: str, prefix: str, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys, redis_url, prefix)


@pytest.fixture
def queue(request: pytest.FixtureRequest, open_queue: Callable[..., BullQueue]) -> BullQueue:
    """The queue `mail` of BullMQ, or of the dialect that is a parameter."""
    return open_queue("mail", getattr(request, "param", "bullmq"))


@pytest.fixture
def bench(queue: BullQueue, client: Redis) -> WorkBench:
    return WorkBench(queue, client, twice=False)


@pytest.fixture
def web(place: dict[str, Any]) -> Iterator[Web]:
    """The server of the page, with the Redis and the prefix of the test."""
    with serving(**place) as web:
        yield web
