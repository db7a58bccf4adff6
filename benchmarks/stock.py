"""Servers of the benchmarks: temporary ones with the settings of Redis, which the peers' users have, too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from spark_bull import EmbeddedRedis
from spark_bull.core.embedded import COMPACT_SETTING, redis_server
from tools.servers import VARIABLE

#: What EmbeddedRedis sets otherwise than Redis itself.
STOCK: Final = {COMPACT_SETTING: "64"}


def stock_redis(config: Mapping[str, str] | None = None, *, executable: str | None = None) -> EmbeddedRedis:
    """A server that is not started. config: directives that differ from Redis' defaults."""
    return EmbeddedRedis({**STOCK, **(config or {})}, executable=executable or stock_server())


def stock_server() -> str:
    """The program of the server: the one of $SPARK_BULL_TEST_SERVER if that is set."""
    return os.environ.get(VARIABLE) or str(redis_server())
