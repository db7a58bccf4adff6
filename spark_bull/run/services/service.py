"""A background thread that runs until it is stopped, and reconnects when Redis is unreachable; its queues, and its
watches. In its rounds it finishes interrupted writes and calls, and finds writes that Redis has lost.

The queues are given by names and globs. A queue joins the set as soon as it exists.

A watch sets an event when a job is delayed. Bull publishes the time on a channel. BullMQ adds a marker to a ZSET, which
one worker removes; its event stream can be read without removing anything.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from types import TracebackType
from typing import Final, TypeVar

from spark_bull.core.clock import monotonic_s
from spark_bull.core.dialects.registry import found_dialect
from spark_bull.core.error_text import short_errors
from spark_bull.core.errors import ConnectionLost, DataLost, DialectError, OptionError, QueueDamaged, check_encodable
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.queues import WriteRecord
from spark_bull.core.options.parts import Sharded
from spark_bull.core.options.redis_settings import RedisSettings
from spark_bull.core.queue.call.caller import sweep
from spark_bull.core.queue.dispatch.roll_forward import KnownWrites, advance_all, report_losses
from spark_bull.core.queue.handle.admission import RoomPauses
from spark_bull.core.queue.handle.handle import FORGET_MS, QueueHandle, by_hub, forget_gone, handle_of
from spark_bull.core.queue.monitor.find import select_queues
from spark_bull.core.queue.shards.layout import Spread
from spark_bull.core.store.connection import BlockingConnection, Connection, Subscription
from spark_bull.core.store.round_trips import StreamReader
from spark_bull.core.threads import DaemonThread
from spark_bull.run.claims.waits import BLOCK_S, RECONNECT_PAUSE_S, RETRY_S, DamagedQueues

log = logging.getLogger("spark_bull")


Self = TypeVar("Self", bound="Service")


@short_errors
class Service(ABC):
    """A daemon thread that calls round() repeatedly. Also a context manager.

    While Redis is unreachable, the service logs one warning and retries. Any other error ends it, and is raised by
    await_termination() and stop().
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._over = Event()
        self._thread = DaemonThread(name, self._run)
        self._error: Exception | None = None

    @abstractmethod
    def round(self) -> None:
        """Processes what is due, then waits for more work, for at most some seconds."""

    def wake(self) -> None:  # noqa: B027 - optional
        """Ends the wait of the current round; called by stop()."""

    def start(self: Self) -> Self:
        """Starts the thread and returns immediately.

        Returns:
          This service.
        """
        self._thread.start()
        return self

    @property
    def started(self) -> bool:
        """Whether start() was called."""
        return self._thread.ident is not None

    @property
    def running(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stops after the current round. Calling it again has no effect.

        Parameters:
          timeout_s: maximum time to wait for the end of the round, s.

        Raises:
          SparkBullError: the error that ended the service before.
        """
        self._over.set()
        if self.running:
            self.wake()
            self._thread.join(timeout_s)
        self._release()
        self._raise()

    def _release(self) -> None:  # noqa: B027 - optional
        """Ends what the service has started; called by stop()."""

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Waits until the service ends.

        Parameters:
          timeout_s: maximum time to wait, s; None: unlimited.

        Returns:
          Whether it has ended.

        Raises:
          SparkBullError: the error that ended it.
        """
        self._thread.join(timeout_s)
        self._raise()
        return not self.running

    def __enter__(self: Self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        disconnected = False
        while not self._over.is_set():
            try:
                self.round()
            except ConnectionLost as error:
                if not disconnected and not self._over.is_set():
                    log.warning("%s lost Redis, retrying: %s", self._name, error)
                disconnected = True
                self._over.wait(RECONNECT_PAUSE_S)
                continue
            except Exception as error:
                log.exception("%s failed", self._name)
                self._error = error
                return
            if disconnected:
                log.warning("%s reconnected to Redis", self._name)
                disconnected = False


#: Interval at which globs are evaluated again, s.
GLOB_S: Final = 30.0
#: Interval of the check for named queues that do not exist yet, s.
MISSING_S: Final = 1.0


class QueueSet:
    """queues: names or globs; default: all queues of the prefix.

    `requested`: these. works: whether their jobs are added or run, and not only read. Queues that match a glob but have
    another dialect than `protocol`, or cannot be worked, are skipped with a warning.
    """

    def __init__(self, options: Sharded, queues: str | Iterable[str], *, works: bool = False) -> None:
        self._options, self._works = options, works
        self.requested = [queues] if isinstance(queues, str) else list(queues) or ["*"]
        check_encodable("queues", self.requested)
        self._spread = Spread(options, self.requested)
        self._connection = Connection(options.redis)
        self._handles: dict[str, QueueHandle] = {}
        self._skipped: set[str] = set()
        self._damaged = DamagedQueues()
        self._globs_at = self._missing_at = 0.0
        self._forget_at = monotonic_s() + FORGET_MS / 1000
        self._names: list[str] = []

    def handles(self) -> list[QueueHandle]:
        """Returns the existing queues. Raises ConnectionLost, or DialectError for a named queue of another dialect."""
        now = monotonic_s()
        if now >= self._globs_at:
            self._names = select_queues(self._connection, self._options.prefix, self._spread.names())
            self._globs_at = now + GLOB_S
        if now >= self._forget_at:
            forget_gone(self._connection, self._options.prefix)
            self._forget_at = now + FORGET_MS / 1000
        missing = [name for name in self._names if not self._is_known(name)]
        if missing and now >= self._missing_at:
            for name in missing:
                self._open(name)
            self._missing_at = now + MISSING_S
        return list(self._handles.values())

    @property
    def complete(self) -> bool:
        """Whether all requested queues exist."""
        return all(map(self._is_known, self._names))

    def _is_known(self, name: str) -> bool:
        return name in self._handles or name in self._skipped

    def _open(self, name: str) -> None:
        keys = QueueKeys(name, self._options.prefix)
        try:
            find = partial(found_dialect, self._connection, keys, self._options.protocol)
            dialect = self._damaged.attempt(keys, "detect its dialect", find)
            if dialect is None:
                return
            handle = handle_of(self._connection.at(keys.base), keys, dialect, self._options)
            if self._works:
                handle.dialect.check_work(name)
        except (DialectError, OptionError) as error:
            if name in self._spread.names():
                raise
            log.warning("skipped a queue: %s", error)
            self._skipped.add(name)
            return
        self._handles[name] = handle


class StreamSignal:
    """Waits for new entries in any of several streams. Uses its own connection."""

    def __init__(self, settings: RedisSettings) -> None:
        self._reader = StreamReader(settings, BLOCK_S)

    def wait(self, last: Mapping[str, str]) -> list[str]:
        """Returns the streams with entries after these ids; empty after a timeout. Raises ConnectionLost."""
        return list(self._reader.wait(last, 1, BLOCK_S))

    def stop_retrying(self) -> None:
        """Lets a call of another thread end when Redis does, without a warning."""
        self._reader.stop_retrying()


#: Minimum interval between two notifications of a busy queue.
PAUSE_S: Final = 0.01


class StreamWatch(Service):
    """Sets `signal` when an entry is added to the event stream of a queue."""

    def __init__(self, handles: Sequence[QueueHandle], signal: Event) -> None:
        super().__init__("event stream watch")
        self._connection = handles[0].connection
        self._stream_signal = StreamSignal(self._connection.settings)
        self._streams = [handle.keys["events"] for handle in handles]
        self._signal = signal
        self._last: dict[str, str] = {}

    def round(self) -> None:
        if len(self._last) < len(self._streams):
            self._last = self._newest()
            self._signal.set()
        if not self._last:
            self._over.wait(RETRY_S)
            return
        try:
            changed = self._stream_signal.wait(self._last)
        except QueueDamaged:
            self._last = {}
            return
        # After stop(), the program may have stopped Redis, too.
        if changed and not self._over.wait(PAUSE_S):
            self._last = self._newest()
            self._signal.set()

    def wake(self) -> None:
        """Lets the wait of the current round end when Redis does."""
        self._stream_signal.stop_retrying()

    def _newest(self) -> dict[str, str]:
        """The id of the newest entry of each stream; a key of another type is left out."""
        replies = self._connection.pipeline(
            [("XREVRANGE", stream, "+", "-", "COUNT", 1) for stream in self._streams], raw=True
        )
        return {
            stream: entries[0][0].decode() if entries else "0-0"
            for stream, entries in zip(self._streams, replies, strict=True)
            if entries is not None
        }


class ChannelWatch(Service):
    """Sets `signal` when a queue publishes a delayed job on its channel."""

    def __init__(self, handles: Sequence[QueueHandle], signal: Event) -> None:
        super().__init__("channel watch")
        self._connection = BlockingConnection(handles[0].connection.settings, BLOCK_S)
        self._channels = [handle.keys["delayed"] for handle in handles]
        self._signal = signal
        self._subscription: Subscription | None = None

    def round(self) -> None:
        if self._subscription is None:
            self._subscription = self._connection.subscribe(self._channels)
            self._signal.set()
        try:
            if self._subscription.receive(BLOCK_S):
                self._over.wait(PAUSE_S)
                self._signal.set()
        except Exception:
            self._subscription.close()
            self._subscription = None
            raise

    def wake(self) -> None:
        """Lets the wait of the current round end when Redis does."""
        self._connection.stop_retrying()


def watches(handles: Sequence[QueueHandle], signal: Event) -> list[Service]:
    """Returns the services, not yet started, that set `signal` for these queues."""
    streams = [handle for handle in handles if handle.dialect.has("event-stream")]
    channels = [handle for handle in handles if not handle.dialect.has("event-stream")]
    services: list[Service] = [StreamWatch(streams, signal)] if streams else []
    return [*services, *(ChannelWatch(together, signal) for together in by_hub(channels))]


#: Minimum interval, s, and maximum number of queues per second.
LOOK_S: Final = 5.0
_QUEUES_PER_S: Final = 200


class LossCheck:
    """strict: whether a loss is raised as DataLost; otherwise it is logged."""

    def __init__(self, *, strict: bool = False, damaged: DamagedQueues | None = None) -> None:
        self._strict = strict
        self._damaged = damaged or DamagedQueues()
        self._known = KnownWrites()
        self._next_at = 0.0

    def run(self, handles: Sequence[QueueHandle]) -> None:
        """Looks at these queues, of one Redis, if it is time. Raises ConnectionLost."""
        if self.due:
            report_losses(self._lost(handles), strict=self._strict)
            self._next_at = monotonic_s() + max(LOOK_S, len(handles) / _QUEUES_PER_S)

    def _lost(self, handles: Sequence[QueueHandle]) -> Sequence[DataLost]:
        """The losses of all queues in shared round trips; of each by itself if one is damaged."""
        try:
            return self._known.lost(handles)
        except QueueDamaged:
            look = [(one.keys, partial(self._known.lost, [one])) for one in handles]
            return [lost for keys, run in look for lost in self._damaged.attempt(keys, "look for losses", run) or ()]

    @property
    def due(self) -> bool:
        """Whether it is time to look again."""
        return monotonic_s() >= self._next_at


class LossWatch(Service):
    """Logs what Redis has lost of queues, for a worker without a promoter."""

    def __init__(self, handles: Sequence[QueueHandle]) -> None:
        super().__init__("loss watch")
        self._handles = handles
        self._check = LossCheck()

    def round(self) -> None:
        """Looks, then waits until it is time again."""
        self._check.run(self._handles)
        self._over.wait(LOOK_S)


#: Interval of the check for interrupted writes and calls, s.
RECOVER_S: Final = 30.0


@dataclass
class _Waiting:
    """Writes of a queue that wait for room. done: their rows that are processed. look_at: when to look again."""

    done: int = -1
    look_at: float = 0.0
    pauses: RoomPauses = field(default_factory=RoomPauses)


class Recovery:
    """Looks for interrupted writes and calls at an interval, and again and again at writes that wait for room in their
    queue. The jobs that a call has left are removed.
    """

    def __init__(self, damaged: DamagedQueues) -> None:
        self._damaged = damaged
        self._all_at = 0.0
        self._waiting: dict[QueueHandle, _Waiting] = {}

    @property
    def next_at(self) -> float:
        """When to call `run` again; monotonic, s."""
        return min([self._all_at, *(waiting.look_at for waiting in self._waiting.values())])

    def run(self, handles: Sequence[QueueHandle]) -> Iterator[tuple[QueueHandle, WriteRecord]]:
        """Rolls the writes forward for which it is time, and yields the records of those that are finished."""
        now = monotonic_s()
        is_check = now >= self._all_at
        due = [*handles] if is_check else [one for one, waiting in self._waiting.items() if now >= waiting.look_at]
        for handle in due:
            for record in self._damaged.attempt(handle.keys, "recover writes", partial(self._advance, handle)) or ():
                yield handle, record
        if is_check:
            for handle in handles:
                if removed := self._damaged.attempt(handle.keys, "remove ended calls", partial(sweep, handle)):
                    log.warning("queue %s: removed %d jobs that an ended call() has left", handle.keys.queue, removed)
            self._all_at = now + RECOVER_S

    def _advance(self, handle: QueueHandle) -> list[WriteRecord]:
        # A service works for other writes and queues, too.
        records = advance_all(handle, on_loss=lambda error: log.error("%s", error))
        unfinished = [record.done for record in records if record.state == "open"]
        if not unfinished:
            self._waiting.pop(handle, None)
            return records
        waiting, done = self._waiting.setdefault(handle, _Waiting()), sum(unfinished)
        if done != waiting.done:
            waiting.pauses.reset()
        waiting.done, waiting.look_at = done, monotonic_s() + waiting.pauses.next_s()
        return [record for record in records if record.state != "open"]
