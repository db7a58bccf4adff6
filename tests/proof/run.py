"""Runs the processes of all promises under one fault, and returns the cells of its column."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from spark_bull.core.errors import SparkBullError
from tests.proof.actors import LOCK_MS, Actor, NodeWorker, drive, keep, read, work, worked_queues
from tests.proof.books import FINAL, Books, Cell, balance, collected
from tests.proof.faults import Fault, Site, site_of
from tests.proof.producers import PRODUCERS, Notes, Place

PREFIX = "proof"
#: How long the queues may take to become empty after the last fault, s; what is unfinished then is stuck.
PATIENCE_S = 120.0
#: Successes of the driver's programs between two faults, and how long after the last one the next fault comes, s.
BETWEEN = (1, 6)
AFTER_S = 0.5


class Column(NamedTuple):
    """How often a fault came, and the cells, by what the producers are named, with `worker` and `results`."""

    times: int
    cells: dict[str, Cell]


def run(
    fault: Fault, seed: int, versions: int, names: Sequence[str] = tuple(PRODUCERS), patience_s: float = PATIENCE_S
) -> Column:
    """Runs all processes until the books can be read."""
    with tempfile.TemporaryDirectory(prefix="spark-bull-proof-") as folder:
        random = Random(seed)
        with site_of(fault, random, Path(folder)) as site:
            place = Place(site.url, PREFIX, Notes(Path(folder) / "notes"), versions, tuple(names), **fault.place)
            try:
                for name, act in {"driver": drive, "keeper": keep, "reader": read}.items():
                    site.actors[name] = Actor(act, place)
                of_node = fault.needs == "node"
                worker = NodeWorker(place, worked_queues(place), LOCK_MS) if of_node else Actor(work, place)
                site.actors["worker"] = worker
                times = _inject(fault, site, place)
                _settle(site, place, patience_s)
                with site.primary as client:
                    return Column(times, balance(Books.read(_directly(site, place), client)))
            finally:
                for actor in site.actors.values():
                    actor.kill()


def _inject(fault: Fault, site: Site, place: Place) -> int:
    """Injects the fault while the driver works, each time after some further successes; returns how often."""
    times = 0
    while times < fault.times:
        successes = site.random.randint(*BETWEEN)
        if not _makes_progress(site, place, successes):
            break
        time.sleep(site.random.uniform(0, AFTER_S))
        fault.inject(site)
        times += 1
    site.heal()
    return times


def _makes_progress(site: Site, place: Place, successes: int) -> bool:
    """Waits for this number of successes, and starts what has died; returns False if the driver has ended before."""
    first = len([*place.notes.of("acked")])
    while len([*place.notes.of("acked")]) < first + successes:
        ended = [name for name, actor in site.actors.items() if actor.has_ended()]
        if "driver" in ended:
            return False
        time.sleep(0.05)
    return True


def _settle(site: Site, place: Place, patience_s: float) -> None:
    """Waits until the driver has ended, all jobs have ended, and all results are read."""
    give_up = time.monotonic() + patience_s
    while time.monotonic() < give_up:
        ended = [name for name, actor in site.actors.items() if actor.has_ended()]
        with site.primary as client, suppress(SparkBullError, RedisError):
            if "driver" in ended and _is_quiet(_directly(site, place), client):
                return
        time.sleep(0.2)


def _is_quiet(place: Place, client: Redis) -> bool:
    for name in [*worked_queues(place), "manage", "schedule"]:
        with place.queue(name) as queue:
            queue.recover()
            unfinished = any(count for state, count in queue.counts().items() if state not in FINAL)
            if unfinished and name not in ("manage", "schedule"):
                return False
    return collected(Books.read(place, client)).lost == 0


def _directly(site: Site, place: Place) -> Place:
    """The place without a proxy."""
    url = site.url if site.watched else site.server.url
    return Place(url, place.prefix, place.notes, place.versions, place.names)
