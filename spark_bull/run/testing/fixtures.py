"""Fixtures of pytest."""

from __future__ import annotations

from functools import cache

import pytest

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.options.parse import parse_arguments
from spark_bull.core.options.table import WORK
from spark_bull.core.store.connection import Connection
from spark_bull.core.store.settings import settings_of


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
    Connection(settings_of(parse_arguments({"url": server.url}, WORK))).call("FLUSHALL", "SYNC")
    return server


@cache
def _server() -> EmbeddedRedis:
    return EmbeddedRedis()
