"""Benchmark of dispatch: the Spark sink and BullMQ's addBulk fill fresh servers in turns.

    make bench            or   .venv/bin/python -m benchmarks.dispatch --jobs 300000 --rounds 3 --only flows

Prints medians and writes them to benchmarks/results/dispatch.json. See benchmarks/README.md.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from redis import Redis

from benchmarks.command import Part, by_side, in_turns, medians, run_parts
from benchmarks.probes import cpu_of, pinged
from benchmarks.report import Verdict, at_least, at_most
from benchmarks.sides import (
    CHILDREN,
    QUEUE,
    Side,
    add_bulk,
    add_flows,
    sink,
    strings,
    structs,
    wide,
    with_children,
    with_ids,
)
from benchmarks.stock import stock_redis
from benchmarks.trials import cpu_seconds, script_seconds, yardstick
from spark_bull.core.store.scripts import load

BASE = f"bull:{QUEUE}:"
#: Records the scripts of whole chunks, but not the commands in them.
SLOWLOG = {"slowlog-log-slower-than": "200", "slowlog-max-len": "100000"}
#: The least ratios to the better BullMQ rate: a little less than benchmarks/README.md has, so that a loss is seen.
TARGETS = {"at-least-once, string": 3.4, "exactly-once, string": 2.8, "exactly-once, struct": 2.8}
#: The part of a write that Redis spends in its scripts.
SHARE_TARGET = 0.65
#: The ratios of writes without the events of jobs that go on.
ENDS_TARGETS = {"exactly-once, ends": 4.0, "at-least-once, ends": 4.8}
#: The ratio with deduplication ids, of which each is given twice.
DEDUPLICATION_TARGET = 1.9
#: The ratio of jobs in flows to FlowProducer.addBulk.
FLOWS_TARGET = 3.0
#: The ratio of jobs with 19 fields, ids and delays.
WIDE_TARGET = 2.2
#: Writes of each of our sides before the first round. The JVM compiles code of Spark meanwhile: after eight writes,
#: it takes half of the CPU of the second one.
WARM_UPS = 2
SCRIPTS = ("add", "commit", "add_flows", "commit_flows")
#: Checks what a side has left in Redis.
Check = Callable[[Redis, int], None]
DELIVERIES = ("exactly-once", "at-least-once")
#: Values of the option `events`.
EVENTS = ("all", "ends", "none")
#: Ratio to the script of `yardstick`.
SCRIPT_TARGET = 1.0


@dataclass(frozen=True)
class Size:
    """The size of each measurement."""

    rounds: int = 3
    jobs: int = 300_000


@dataclass(frozen=True)
class Measured:
    """One measurement. Times in ms, except `seconds`.

    script_share: the part of the time that Redis spent in scripts. cpu_us_per_job: of Redis and all of its clients
    but the one that sends PING.
    """

    seconds: float
    ping_p50: float
    ping_p99: float
    ping_longest: float
    script: float
    server_us_per_job: float
    script_share: float
    cpu_us_per_job: float


def measure(side: Side, jobs: int, check: Check) -> Measured:
    """Fills a fresh server and checks its content."""
    with stock_redis(SLOWLOG) as server, Redis.from_url(server.url) as client:
        with side(server.port, jobs) as run:
            client.slowlog_reset()
            client.config_resetstat()
            before, of_all = cpu_seconds(client), cpu_of(os.getpid())
            with pinged(server.port) as pings:
                seconds = run()
            share = script_seconds(client) / seconds
            server_s, others = cpu_seconds(client) - before, cpu_of(os.getpid()) - of_all
        check(client, jobs)
        # Some of Spark's processes may end while Node works.
        clients_s = others.node or others.jvm + others.python - pings.cpu_s
        used = (server_s / jobs * 1e6, share, (server_s + clients_s) / jobs * 1e6)
        return Measured(seconds, pings.p50, pings.p99, pings.longest, script_ms(client), *used)


def script_ms(client: Redis) -> float:
    """Returns the median duration of the scripts that add chunks, by the slow log; 0 without such scripts."""
    ours = {load(f"bullmq/{name}").sha.encode() for name in SCRIPTS}
    commands = [(entry["command"].split(b" ")[:2], entry["duration"]) for entry in client.slowlog_get(100_000)]
    times: list[float] = [us / 1000 for words, us in commands if words[1:] and words[1] in ours] or [0.0]
    return statistics.median(times)


def check(client: Redis, jobs: int) -> None:
    """Checks jobs as `check_jobs` does, and that they have caused events."""
    check_jobs(client, jobs)
    events = client.xlen(f"{BASE}events")
    assert 10_000 <= events < 11_000 or (jobs < 5_000 and events >= 2 * jobs), f"got {events} events"


def check_jobs(client: Redis, jobs: int) -> None:
    """Checks that all jobs wait exactly once with their hashes, and that no staged chunks are left."""
    ids = [job_id.decode() for job_id in client.execute_command("LRANGE", f"{BASE}wait", 0, -1)]
    assert sorted(map(int, ids)) == list(range(1, jobs + 1)), f"expected jobs 1 to {jobs} in wait, got {len(ids)}"
    assert client.get(f"{BASE}id") == str(jobs).encode()
    hashes = sum(client.exists(*(BASE + i for i in ids[at : at + 1_000])) for at in range(0, jobs, 1_000))
    assert hashes == jobs, f"expected {jobs} hashes of jobs, got {hashes}"
    for job_id in ids[:: max(1, jobs // 1_000)]:
        fields = client.hgetall(BASE + job_id)
        assert {b"name", b"data", b"opts", b"timestamp", b"delay", b"priority"} <= set(fields)
        assert json.loads(fields[b"data"])["carrier"] == "UA"
    assert client.zscore(f"{BASE}marker", "0") == 0
    left = {
        key for key in client.scan_iter(f"{BASE}spark:*", count=10_000) if b":stage:" in key or b":manifest:" in key
    }
    assert not left, f"expected no staged chunks to be left, got {left}"


def check_wide(client: Redis, jobs: int) -> None:
    """Checks that each job is there once, with its fields, and that a tenth of them is delayed."""
    ids = client.execute_command("LRANGE", f"{BASE}wait", 0, -1)
    delayed = client.execute_command("ZRANGE", f"{BASE}delayed", 0, -1)
    assert len({*ids, *delayed}) == len(ids) + len(delayed) == jobs
    assert jobs // 10 <= len(delayed) <= jobs // 10 + 2
    for job_id in [*ids[:: max(1, jobs // 1_000)], *delayed[:: max(1, jobs // 1_000)]]:
        fields = client.hgetall(BASE + job_id.decode())
        assert len(json.loads(fields[b"data"])) == 19
        assert json.loads(fields[b"opts"]).items() >= {"attempts": 3, "jobId": job_id.decode()}.items()


def check_flows(client: Redis, jobs: int) -> None:
    """Checks that all jobs without children wait, and that each of the others waits for its children."""
    flows, children = jobs // (CHILDREN + 1), f"bull:{QUEUE}-children:"
    parents = [job_id.decode() for job_id in client.execute_command("ZRANGE", f"{BASE}waiting-children", 0, -1)]
    assert len(parents) == flows, f"expected {flows} parents, got {len(parents)}"
    assert client.llen(f"{children}wait") == flows * CHILDREN
    for parent in parents[:: max(1, flows // 1_000)]:
        for child in client.execute_command("SMEMBERS", f"{BASE}{parent}:dependencies"):
            fields = client.hgetall(child)
            assert fields[b"parentKey"] == (BASE + parent).encode()
            assert json.loads(fields[b"data"])["carrier"] == "UA"
        assert client.scard(f"{BASE}{parent}:dependencies") == CHILDREN


def check_once(client: Redis, jobs: int) -> None:
    """Checks that one job of each deduplication id waits, of which there are half as many as jobs."""
    kept = jobs // 2
    ids = client.execute_command("LRANGE", f"{BASE}wait", 0, -1)
    assert len(set(ids)) == len(ids) == kept, f"expected {kept} jobs in wait, got {len(ids)}"
    assert client.get(f"{BASE}id") == str(jobs).encode()
    held = client.mget([f"{BASE}de:{number}" for number in range(kept)])
    assert set(held) == set(ids), "expected the id of each waiting job in a deduplication key"


def is_peer(name: str) -> bool:
    return name.startswith("BullMQ")


def show(found: dict[str, Measured], jobs: int) -> None:
    best, peers = best_rate(found, jobs), [result for name, result in found.items() if is_peer(name)]
    server, cpu = (min(getattr(peer, name) for peer in peers) for name in ("server_us_per_job", "cpu_us_per_job"))
    times = f"{'PING p50':>10}{'p99':>7}{'max':>7}{'script':>10}{'in scripts':>12}"
    print(f"\n{'':32}{'jobs/s':>9}{'x BullMQ':>10}{times}{'server us':>11}{'x less':>8}{'all CPU us':>12}{'x less':>8}")
    for name, r in found.items():
        script = f"{r.script:7.2f} ms" if r.script else " " * 10
        print(
            f"{name:32}{jobs / r.seconds:9,.0f}{jobs / r.seconds / best:10.2f}{r.ping_p50:10.2f}{r.ping_p99:7.2f}"
            f"{r.ping_longest:7.2f}{script}{r.script_share:12.0%}{r.server_us_per_job:11.2f}"
            f"{server / r.server_us_per_job:8.2f}{r.cpu_us_per_job:12.2f}{cpu / r.cpu_us_per_job:8.2f}"
        )


def best_rate(found: dict[str, Measured], jobs: int) -> float:
    return max(jobs / result.seconds for name, result in found.items() if is_peer(name))


def verdicts(found: dict[str, Measured], jobs: int, yard_ms: float) -> list[Verdict]:
    """Compares rates, script durations and PING times with the targets. yard_ms: median of the yardstick."""
    best = best_rate(found, jobs)
    results = []
    for name, target in TARGETS.items():
        ratio = jobs / found[name].seconds / best
        results.append(Verdict(f"{name}, x addBulk", f">= {target}", f"{ratio:.2f}", ratio >= target))
    share = found["exactly-once, string"].script_share
    what = "exactly-once, string, part of the time in scripts"
    results.append(Verdict(what, f">= {SHARE_TARGET:.0%}", f"{share:.0%}", share >= SHARE_TARGET))
    ours = {name: result for name, result in found.items() if name in TARGETS}
    script = max(result.script for result in ours.values())
    results.append(at_most("script, median, x yardstick", SCRIPT_TARGET, script / yard_ms))
    theirs = min((result for name, result in found.items() if is_peer(name)), key=lambda result: result.seconds)
    for name, result in ours.items():
        kept = result.ping_p99 <= theirs.ping_p99
        results.append(Verdict(f"PING p99 ms, {name}", f"<= {theirs.ping_p99:.2f}", f"{result.ping_p99:.2f}", kept))
    return results


def rate_verdicts(found: dict[str, Measured], jobs: int, least: float) -> list[Verdict]:
    """Compares the rates with the peer's."""
    best, results = best_rate(found, jobs), []
    for name, result in found.items():
        if not is_peer(name):
            ratio = jobs / result.seconds / best
            results.append(Verdict(f"{name}, x addBulk", f">= {least}", f"{ratio:.2f}", ratio >= least))
    return results


def run_plain(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    frames = {"string": strings(spark, size.jobs).cache(), "struct": structs(spark, size.jobs).cache()}
    sides = {"BullMQ addBulk, 1 process": add_bulk(1), "BullMQ addBulk, 2 processes": add_bulk(2)}
    sides |= {f"{delivery}, {kind}": sink(frames[kind], delivery) for kind in frames for delivery in DELIVERIES}
    yard_ms = statistics.median(yardstick().script_p50_ms for _ in range(size.rounds))
    runs, found = compare(sides, size, check)
    return by_side(runs) | {"yardstick_ms": yard_ms}, verdicts(found, size.jobs, yard_ms)


def run_events(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    """Writes that leave out events."""
    frame, jobs = strings(spark, size.jobs).cache(), size.jobs
    sides = {f"BullMQ addBulk, {number}": add_bulk(number) for number in (1, 2)}
    sides |= {f"{delivery}, {kind}": sink(frame, delivery, events=kind) for kind in EVENTS for delivery in DELIVERIES}
    runs, found = compare(sides, size, check_jobs)
    ratios = {name: jobs / found[name].seconds / best_rate(found, jobs) for name in ENDS_TARGETS}
    return by_side(runs), [at_least(f"{name}, x addBulk", least, ratios[name]) for name, least in ENDS_TARGETS.items()]


def run_wide(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    """Jobs of 19 fields with ids of their own, of which a tenth is delayed."""
    frame = wide(spark, size.jobs).cache()
    sides = {f"BullMQ addBulk, wide, {number}": add_bulk(number, "wide") for number in (1, 2)}
    sides |= {f"{delivery}, wide": sink(frame, delivery, attempts="3") for delivery in DELIVERIES}
    runs, found = compare(sides, size, check_wide)
    return by_side(runs), rate_verdicts(found, size.jobs, WIDE_TARGET)


def run_deduplication(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    """Jobs of which every second one has a deduplication id that is taken."""
    kept = size.jobs // 2
    frame = with_ids(strings(spark, size.jobs), kept).cache()
    sides = {f"BullMQ addBulk, once, {number}": add_bulk(number, "once", kept) for number in (1, 2)}
    sides |= {f"{delivery}, once": sink(frame, delivery) for delivery in DELIVERIES}
    runs, found = compare(sides, size, check_once)
    return by_side(runs), rate_verdicts(found, size.jobs, DEDUPLICATION_TARGET)


def run_flows(spark: SparkSession, size: Size) -> tuple[dict[str, Any], list[Verdict]]:
    """Flows, each of them a job with children in another queue, `size.jobs` jobs in all."""
    frame = with_children(strings(spark, size.jobs)).cache()
    sides = {f"BullMQ FlowProducer.addBulk, {number}": add_flows(number) for number in (1, 2)}
    sides |= {f"{delivery}, flows": sink(frame, delivery) for delivery in DELIVERIES}
    runs, found = compare(sides, size, check_flows)
    return by_side(runs), rate_verdicts(found, size.jobs, FLOWS_TARGET)


def compare(
    sides: Mapping[str, Side], size: Size, check: Check
) -> tuple[dict[str, list[Measured]], dict[str, Measured]]:
    """Measures the sides in turns, ours WARM_UPS times before; prints and returns the runs and their medians.

    The first write of a frame computes and caches it.
    """
    for side in [side for name, side in sides.items() if not is_peer(name)] * WARM_UPS:
        measure(side, size.jobs, check)
    trials = {name: partial(measure, side, size.jobs, check) for name, side in sides.items()}
    runs = in_turns(trials, size.rounds, lambda _, run: f"{size.jobs / run.seconds:9,.0f} jobs/s")
    found = medians(runs)
    show(found, size.jobs)
    return runs, found


PARTS: Mapping[str, Part[Size]] = {
    "plain": run_plain,
    "events": run_events,
    "wide": run_wide,
    "deduplication": run_deduplication,
    "flows": run_flows,
}


if __name__ == "__main__":
    run_parts("dispatch", __doc__.splitlines()[0], PARTS, Size(), Size(rounds=1, jobs=20_000))
