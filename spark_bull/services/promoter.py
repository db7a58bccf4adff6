"""Promoter: delayed jobs wait for a worker once they are due, interrupted writes and stalled jobs are taken care of."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Final, NoReturn

from spark_bull.clock import monotonic_s
from spark_bull.errors import SparkBullError
from spark_bull.options import SERVICE, parse_arguments
from spark_bull.queue.claim import promote_due
from spark_bull.queue.handle import CHUNK_SIZE, QueueHandle
from spark_bull.queue.writes import recover
from spark_bull.services.delayed_signal import watches
from spark_bull.services.queue_set import MISSING_S, QueueSet
from spark_bull.services.rescuer import rescue_and_tell
from spark_bull.services.service import Service

log = logging.getLogger("spark_bull")

#: The longest sleep; signals end it earlier.
SLEEP_S: Final = 5.0
#: Jobs due one after the other are gathered for so long.
GATHER_S: Final = 0.002
#: How often unfinished writes are looked for.
RECOVER_S: Final = 30.0


@dataclass(frozen=True)
class PromoterStats:
    """What a promoter has done so far.

    Parameters:
      promoted: delayed jobs that came due.
      rescued: jobs that had lost their worker and wait again.
      failed: jobs that failed because they lost their worker too often.
      recovered: writes of Spark that were finished.
    """

    promoted: int = 0
    rescued: int = 0
    failed: int = 0
    recovered: int = 0


class Promoter(Service):
    """Moves delayed jobs to the waiting ones when they are due, in a thread of its own.

        with Promoter("redis://localhost:6379", queues=["mail"]):
            ...

    It sleeps until the next job is due, or one is delayed to an earlier time. It also finishes interrupted writes of
    Spark and, unless `rescue` is False, does what a Rescuer does. Any number may run at once, beside workers in Node,
    too. `done` has the counts so far.

    Parameters:
      url: `redis://`, `rediss://` or `unix://`, with user, password and database inside. Default: $SPARK_BULL_URL, else
        `host` and `port`.
      queues: names or globs; all queues of the prefix when there are none.
      rescue: whether jobs whose worker is gone are brought back.
      check_ms: interval of that check, ms; default: 30,000.
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
        rescue: bool = True,
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
        super().__init__("promoter")
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
        self._rescue = rescue
        self._check_ms: int = options["check_ms"]
        self._max_stalled: int = options["max_stalled"]
        self._signal = Event()
        self._watched: list[QueueHandle] = []
        self._watches: list[Service] = []
        self._recover_at = self._rescue_at = 0.0
        self.done = PromoterStats()

    def once(self) -> PromoterStats:
        """Does all that is due now, in this thread.

        Returns:
          What this Promoter has done so far.

        Raises:
          ConnectionLost: when Redis can't be reached.
          DialectError: when a named queue is of another dialect than `protocol` says.
        """
        handles = self._queues.handles()
        self._do_chores(handles)
        while self._promote(handles) == 0:
            pass
        return self.done

    def round(self) -> None:
        """Promotes one chunk of each queue, then waits until more is due."""
        self._signal.clear()
        handles = self._queues.handles()
        self._watch(handles)
        self._do_chores(handles)
        pause = self._promote(handles)
        if pause and not self._signal.wait(max(pause, GATHER_S)):
            return
        if pause > GATHER_S:
            self._over.wait(GATHER_S)

    def wake(self) -> None:
        """Ends the waiting of a round."""
        self._signal.set()

    def stop(self, grace_s: float = 5.0) -> None:
        """Ends after what is going on; stopping again does nothing.

        Parameters:
          grace_s: maximum time to wait for that, s.

        Raises:
          SparkBullError: what ended the service before.
        """
        super().stop(grace_s)
        for watch in self._watches:
            watch.stop(0)

    def _promote(self, handles: Sequence[QueueHandle]) -> float:
        """One chunk of each queue; returns for how many s there is nothing more to be done, 0 when there is."""
        pause = min(SLEEP_S, max(0.0, min(self._recover_at, self._rescue_at) - monotonic_s()))
        if not self._queues.complete:
            pause = min(pause, MISSING_S)
        moved = 0
        for handle in handles:
            promoted = promote_due(handle, CHUNK_SIZE)
            moved += promoted.moved
            if promoted.next_due is not None:
                pause = min(pause, max(0.0, (promoted.next_due - promoted.now) / 1000))
        if moved:
            self.done = replace(self.done, promoted=self.done.promoted + moved)
        return pause

    def _do_chores(self, handles: Sequence[QueueHandle]) -> None:
        now = monotonic_s()
        if now >= self._recover_at:
            for handle in handles:
                self._recover(handle)
            self._recover_at = now + RECOVER_S
        if not self._rescue:
            self._rescue_at = now + SLEEP_S
        elif now >= self._rescue_at:
            for handle in handles:
                rescued = rescue_and_tell(handle, self._check_ms, self._max_stalled)
                self.done = replace(
                    self.done,
                    rescued=self.done.rescued + len(rescued.stalled),
                    failed=self.done.failed + len(rescued.failed),
                )
            self._rescue_at = now + self._check_ms / 1000

    def _recover(self, handle: QueueHandle) -> None:
        for record in recover(handle):
            log.warning("queue %s: finished write %s, %d jobs", handle.keys.queue, record.id, record.done)
            self.done = replace(self.done, recovered=self.done.recovered + 1)

    def _watch(self, handles: Sequence[QueueHandle]) -> None:
        """Watches the signals of these queues, once their set has changed."""
        if [handle.keys for handle in handles] == [handle.keys for handle in self._watched]:
            return
        for watch in self._watches:
            try:
                watch.stop(0)
            except SparkBullError:
                log.debug("a watch had ended already", exc_info=True)
        self._watched = list(handles)
        self._watches = watches(handles, self._signal)
        for watch in self._watches:
            watch.start()
