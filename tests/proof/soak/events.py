"""Reads the events of all queues while the soak runs, as queues keep few of them."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event, Thread

from redis import Redis
from redis.exceptions import RedisError

from tests.proof.books import Books

READ_S = 0.2
#: Events that a queue keeps, so that the streams are full, and their memory constant, after a short time.
KEPT_EVENTS = 1_000


class Recorder:
    """Adds the events to books until it is stopped. streams: the keys of the events, by queue."""

    def __init__(self, books: Books, url: str, streams: Mapping[str, str]) -> None:
        self._books = books
        self._client = Redis.from_url(url, socket_timeout=5)
        self._queues = {key.encode(): queue for queue, key in streams.items()}
        self._last = dict.fromkeys(self._queues, b"0")
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Reads the last events, too."""
        self._stop.set()
        self._thread.join()
        self._read()
        self._client.close()

    def _run(self) -> None:
        while not self._stop.wait(READ_S):
            try:
                self._read()
            except RedisError:
                # The fault will pass.
                continue

    def _read(self) -> None:
        for key, events in self._client.xread(self._last):
            for event, fields in events:
                self._books.see(self._queues[key], event, fields)
                self._last[key] = event
