"""Warns of a Redis that deletes keys when its memory is full: jobs, and what this library stores about them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

log = logging.getLogger("spark_bull")

#: The policy with which Redis refuses writes instead.
NO_EVICTION: Final = "noeviction"
#: Where the servers are that this process has warned of.
_told: Final[set[str]] = set()


def warn_of_eviction(where: str, info: Mapping[str, Any]) -> None:
    """Logs once per process and server if its policy evicts keys. info: the reply of INFO, which may be empty."""
    policy = info.get("maxmemory_policy", NO_EVICTION)
    if policy != NO_EVICTION and where not in _told:
        _told.add(where)
        log.warning(
            "expected maxmemory-policy noeviction at %s, got %s: Redis may delete jobs when its memory is full; set "
            "it in redis.conf, and run spark-bull doctor",
            where,
            policy,
        )
