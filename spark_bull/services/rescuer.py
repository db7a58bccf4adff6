"""Rescuer: moves stalled jobs back to `wait`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NoReturn

from spark_bull.options.parse import parse_arguments
from spark_bull.options.table import SERVICE
from spark_bull.queue.core.handle import QueueHandle
from spark_bull.queue.process.claim import Rescued, rescue
from spark_bull.services.queue_set import QueueSet
from spark_bull.services.service import Service

log = logging.getLogger("spark_bull")


class Rescuer(Service):
    """Rescues stalled jobs in a background thread, as workers of the Node libraries do.

        with Rescuer("redis://localhost:6379", queues=["mail"]):
            ...

    Several Rescuers may run in parallel, also with Node workers: one of them performs the check in each interval.

    Parameters:
      url: `redis://`, `rediss://` or `unix://` URL, with user, password and database. Default: $SPARK_BULL_URL, else
        `host` and `port`.
      queues: names or globs of the queues; default: all queues of the prefix.
      check_ms: interval of the check for stalled jobs, ms; default: 30,000.
      max_stalled: how often a job may stall before it fails; default: 1.
      host: host of Redis if there is no `url`; default: localhost.
      port: port of Redis if there is no `url`; default: 6379.
      db: number of the database if there is no `url`; default: 0.
      username: ACL user; takes precedence over the one in `url`.
      password: password; takes precedence over the one in `url`. Default: $SPARK_BULL_PASSWORD.
      ssl: whether to use TLS if there is no `url`.
      call_timeout_ms: timeout of one call to Redis, ms, after which it is retried; default: 30,000.
      retry_ms: how long a call is retried, with exponential backoff, ms; default: 20,000.
      redis: further settings of redis-py, such as {"client_name": "reports"}.
      prefix: first part of every key, as in the Node library; default: bull.
      protocol: dialect of the queues: bull-1 (Bull 1, 2), bull (3, 4), bullmq (5, 6), or auto: detected in Redis.
      bullmq_version: "5" or "6", which differ in where jobs of a paused queue are; auto: detected in Redis.

    Raises:
      OptionError: for an invalid or unknown argument, or one that conflicts with another.
    """

    def __init__(
        self,
        url: str | None = None,
        queues: str | Iterable[str] = (),
        *,
        check_ms: int | None = None,
        max_stalled: int | None = None,
        host: str | None = None,
        port: int | None = None,
        db: int | None = None,
        username: str | None = None,
        password: str | None = None,
        ssl: bool | None = None,
        call_timeout_ms: int | None = None,
        retry_ms: int | None = None,
        redis: Mapping[str, str] | None = None,
        prefix: str | None = None,
        protocol: str | None = None,
        bullmq_version: str | None = None,
        **unknown: NoReturn,
    ) -> None:
        super().__init__("rescuer")
        arguments = {
            "url": url,
            "check_ms": check_ms,
            "max_stalled": max_stalled,
            "host": host,
            "port": port,
            "db": db,
            "username": username,
            "password": password,
            "ssl": ssl,
            "call_timeout_ms": call_timeout_ms,
            "retry_ms": retry_ms,
            "prefix": prefix,
            "protocol": protocol,
            "bullmq_version": bullmq_version,
        }
        options = parse_arguments(arguments, redis, SERVICE, unknown)
        self._queues = QueueSet(options, queues)
        self._check_ms: int = options["check_ms"]
        self._max_stalled: int = options["max_stalled"]

    def round(self) -> None:
        """Checks each queue, then waits for `check_ms`."""
        for handle in self._queues.handles():
            rescue_and_log(handle, self._check_ms, self._max_stalled)
        self._over.wait(self._check_ms / 1000)


def rescue_and_log(handle: QueueHandle, check_ms: int, max_stalled: int) -> Rescued:
    """Checks one queue, and logs the number of stalled jobs if there are any."""
    rescued = rescue(handle, check_ms=check_ms, max_stalled=max_stalled)
    if rescued.stalled or rescued.failed:
        log.warning(
            "queue %s: %d stalled jobs were moved back to wait, %d failed because they stalled too often",
            handle.keys.queue,
            len(rescued.stalled),
            len(rescued.failed),
        )
    return rescued
