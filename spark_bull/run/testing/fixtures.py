"""Fixtures of pytest."""

from __future__ import annotations

from functools import cache

import pytest

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.store.connection import Connection


@pytest.fixture
def redis() -> EmbeddedRedis:
    """An empty Redis: one server for all tests of a process, which ends with it.

        def test_a_mail_is_sent(redis):
            queue = BullQueue("mail", url=redis.url)

    Returns:
      The running server.

    Raises:
      SparkBullError: if there is no server to start: `pip install 'spark-bull[local]'`.
    """
    server = _server().start()
    Connection(parse_arguments({"url": server.url}, WorkOptions).redis).call("FLUSHALL", "SYNC")
    return server


@cache
def _server() -> EmbeddedRedis:
    return EmbeddedRedis()
