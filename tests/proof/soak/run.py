"""Runs all parties with a fault every 20 s, waits until all jobs are collected, and reads the books."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event

from redis import Redis
from redis.exceptions import RedisError

from spark_bull import EmbeddedRedis, Promoter, SparkBullError
from tests.proof.actors import CHECK_MS, Actor, NodeWorker
from tests.proof.books import FINAL, Books
from tests.proof.faults import ALWAYS, FAULTS, Site
from tests.proof.producers import RETRY_MS, Notes, Place
from tests.proof.soak.audit import Balance, audit, results_of
from tests.proof.soak.drivers import has_stopped
from tests.proof.soak.memory import Memory, NoLine, Size, Slope, by_expiry, kinds, used
from tests.proof.soak.parties import Parties, Party, SparkDriver
from tests.proof.soak.programs import ALL_QUEUES, PROGRAMS, SCHEDULERS, drive, end
from tests.proof.soak.slots import LOCK_MS, NOT_FOR_NODE, work
from tests.support.spark_submit import JVM_OPTIONS
from tests.support.wait import Background

PREFIX = "soak"
BETWEEN_S = 20.0
#: Interval of samples of memory, s; the keys of Redis are measured in one of KEYS_EACH samples.
SAMPLE_S, KEYS_EACH = 5.0, 6
#: How long it may take, after the last fault, until all jobs have ended and are collected, s.
PATIENCE_S = 600.0


@dataclass(frozen=True)
class Report:
    """faults: how often each came. starts: of the parties. kept: number and bytes of what Redis has at the end."""

    faults: Counter[str]
    starts: Counter[str]
    balance: Balance
    slopes: dict[str, Slope | NoLine | None]
    kept: dict[str, tuple[int, int]]


def keep(place: Place) -> None:
    """Promotes, rescues stalled jobs, and recovers writes."""
    names = [*ALL_QUEUES, "manage"]
    options = {"prefix": place.prefix, "protocol": "bullmq", "check_ms": CHECK_MS, "retry_ms": RETRY_MS}
    with Promoter(place.url, names, max_stalled=1_000, **options):
        Event().wait()


def soak(minutes: float, seed: int, tell: Callable[[str], None] = print) -> Report:
    """tell: is called with each fault."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
    with TemporaryDirectory(prefix="spark-bull-soak-") as folder, EmbeddedRedis(ALWAYS) as server:
        place = Place(server.url, PREFIX, Notes(Path(folder) / "notes"), 0, tuple(PROGRAMS))
        site, books, memory = Site(server.url, server, Random(seed)), Books(place), Memory()
        _keep_few_events(site, place)
        streams = {name: place.queue(name).handle.keys["events"] for name in ALL_QUEUES}
        with Recorder(books, server.url, streams), Parties(_starters(place)) as parties:
            faults = _disturb(parties, site, memory, minutes * 60, tell)
            end(place)
            _settle(parties, place, tell)
        with site.primary as client:
            kept = kinds(client)
        return Report(faults, parties.starts, audit(books, Path(folder)), memory.slopes(minutes * 60), kept)


def _starters(place: Place) -> dict[str, Callable[[], Party]]:
    node = partial(NodeWorker, place, [queue for queue in ALL_QUEUES if queue not in NOT_FOR_NODE], LOCK_MS)
    return {
        "programs": partial(Actor, drive, place),
        "Spark driver that dispatches and collects": partial(SparkDriver, "dispatch_and_collect", place),
        "Spark driver with workers": partial(SparkDriver, "work", place),
        "slot without Spark": partial(Actor, work, place),
        "first Node worker": node,
        "second Node worker": node,
        "services": partial(Actor, keep, place),
    }


def _keep_few_events(site: Site, place: Place) -> None:
    with site.primary as client:
        for name in ALL_QUEUES:
            client.hset(place.queue(name).handle.keys["meta"], "opts.maxLenEvents", KEPT_EVENTS)


def _disturb(parties: Parties, site: Site, memory: Memory, seconds: float, tell: Callable[[str], None]) -> Counter[str]:
    """Injects faults, starts what has died, and measures memory; returns how often each fault came."""
    kills, faults = kills_of(parties, site), Counter[str]()
    order = shuffled([*kills], site.random)
    began, due, sample_at, samples = time.monotonic(), BETWEEN_S, SAMPLE_S, 0
    while (now := time.monotonic() - began) < seconds:
        parties.ended()
        if now >= due:
            name = next(order)
            tell(f"{now:5.0f} s: {name}")
            kills[name]()
            faults[name] += 1
            due = now + BETWEEN_S
        elif now >= sample_at:
            _measure(parties, site, memory, now, keys=samples % KEYS_EACH == 0)
            sample_at, samples = now + SAMPLE_S, samples + 1
        time.sleep(0.5)
    return faults


def _measure(parties: Parties, site: Site, memory: Memory, now: float, keys: bool) -> None:
    memory.add(parties.sizes(now))
    with suppress(RedisError), site.primary as client:
        sizes = used(client) | (by_expiry(client) if keys else {})
        memory.add({name: Size(now, size) for name, size in sizes.items()})


def _settle(parties: Parties, place: Place, tell: Callable[[str], None]) -> None:
    """Waits until nothing is dispatched, all jobs have ended, and all results are in the table."""
    give_up, scheduling, missing = time.monotonic() + PATIENCE_S, True, "the programs"
    while time.monotonic() < give_up:
        with suppress(SparkBullError, RedisError):
            if "programs" not in parties.ended():
                missing = "the programs"
            elif not has_stopped(place):
                missing = "the Spark driver that dispatches"
            elif scheduling:
                with place.queue("schedule") as queue:
                    for name in SCHEDULERS:
                        queue.remove_scheduler(name)
                scheduling = False
            elif not (missing := _unfinished(place)):
                return
        time.sleep(1)
    tell(f"waited {PATIENCE_S:g} s in vain for {missing}")


def _unfinished(place: Place) -> str:
    """What has not ended, or is not collected."""
    left: set[tuple[str, str]] = set()
    for name in (*ALL_QUEUES, "manage"):
        with place.queue(name) as queue:
            counts = queue.counts()
            if any(count for state, count in counts.items() if state not in FINAL):
                return f"{counts} of queue {name}"
            left |= {(name, job.id) for state in FINAL for job in queue.page(state, 0, 100_000)}
    missing = left - {(job.queue, job.id) for job in results_of(place.notes.path.parent)}
    return f"the results of {len(missing)} jobs" if missing else ""


#: Columns of the table that are about Redis.
OF_REDIS = (
    "Redis killed, AOF always",
    "Redis suspended 10 s",
    "OOM",
    "READONLY",
    "NOREPLICAS",
    "MISCONF",
    "BUSY",
    "SCRIPT FLUSH",
    "CLIENT KILL",
)
Kill = Callable[[], None]


def kills_of(parties: Parties, site: Site) -> dict[str, Kill]:
    """All faults, by their names."""
    kills: dict[str, Kill] = {f"{name} killed": lambda name=name: parties.kill(name) for name in parties.running}
    for name, party in parties.running.items():
        if isinstance(party, SparkDriver):
            kills[f"a Python process of {name} killed"] = lambda party=party: party.kill_python(site.random)
    return kills | {name: lambda name=name: FAULTS[name].inject(site) for name in OF_REDIS}


def shuffled(names: list[str], random: Random) -> Iterator[str]:
    """All names in a random order, again and again, so that each comes as often as the others."""
    while True:
        yield from random.sample(names, len(names))


READ_S = 0.2
#: Events that a queue keeps, so that the streams are full, and their memory constant, after a short time.
KEPT_EVENTS = 1_000


class Recorder(Background):
    """Adds the events to books until it is stopped. streams: the keys of the events, by queue."""

    def __init__(self, books: Books, url: str, streams: Mapping[str, str]) -> None:
        super().__init__()
        self._books = books
        self._client = Redis.from_url(url, socket_timeout=5)
        self._queues = {key.encode(): queue for queue, key in streams.items()}
        self._last = dict.fromkeys(self._queues, b"0")

    def work(self) -> None:
        with self._client:
            while not self.stopping.wait(READ_S):
                # A fault will pass.
                with suppress(RedisError):
                    self._read()
            # The last events, too.
            self._read()

    def _read(self) -> None:
        for key, events in self._client.xread(self._last):
            for event, fields in events:
                self._books.see(self._queues[key], event, fields)
                self._last[key] = event
