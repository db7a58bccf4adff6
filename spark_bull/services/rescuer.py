"""Rescuer: jobs whose worker is gone come back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NoReturn

from spark_bull.options import SERVICE, parse_arguments
from spark_bull.queue.claim import Rescued, rescue
from spark_bull.queue.handle import QueueHandle
from spark_bull.services.queue_set import QueueSet
from spark_bull.services.service import Service

log = logging.getLogger("spark_bull")


class Rescuer(Service):
    """Brings back jobs whose worker is gone, in a thread of its own, as workers of the Node libraries do.

        with Rescuer("redis://localhost:6379", queues=["mail"]):
            ...

    Any number may run at once, beside workers in Node, too: in each interval one of them does the check.

    Parameters:
      url: `redis://`, `rediss://` or `unix://`, with user, password and database inside. Default: $SPARK_BULL_URL, else
        `host` and `port`.
      queues: names or globs; all queues of the prefix when there are none.
      check_ms: interval of the check, ms; default: 30,000.
      max_stalled: how often a job may lose its worker before it fails; default: 1.
      host: host of Redis, when there is no `url`; default: localhost.
      port: port of Redis, when there is no `url`; default: 6379.
      db: number of the database, when there is no `url`; default: 0.
      username: ACL user; takes precedence over the one in `url`.
      password: password; takes precedence over the one in `url`. Default: $SPARK_BULL_PASSWORD.
      ssl: whether to use TLS, when there is no `url`.
      call_timeout_ms: timeout of one call to Redis, ms, after which it is retried; default: 30,000.
      retry_ms: for how long a call is retried, ms, with growing pauses; default: 20,000.
      redis: further settings of redis-py, such as {"client_name": "reports"}.
      prefix: first part of every key, as in the Node library; default: bull.
      protocol: dialect of the queues: bull-1 (Bull 1, 2), bull (3, 4), bullmq (5, 6), or auto: what is found in Redis.
      bullmq_version: "5" or "6": where jobs of a paused BullMQ queue go; auto: by what is found in Redis.

    Raises:
      OptionError: for an argument that is wrong, unknown, or does not go with another one.
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
            rescue_and_tell(handle, self._check_ms, self._max_stalled)
        self._over.wait(self._check_ms / 1000)


def rescue_and_tell(handle: QueueHandle, check_ms: int, max_stalled: int) -> Rescued:
    """One check of one queue, which is logged when it finds something."""
    rescued = rescue(handle, check_ms=check_ms, max_stalled=max_stalled)
    if rescued.stalled or rescued.failed:
        log.warning(
            "queue %s: %d jobs had lost their worker and wait again, %d have failed because it happened too often",
            handle.keys.queue,
            len(rescued.stalled),
            len(rescued.failed),
        )
    return rescued
