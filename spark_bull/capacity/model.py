"""From a load to the servers, cores and memory that it needs; docs/concepts/capacity.md explains the formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

from spark_bull.capacity.costs import (
    COMMIT,
    COMPACT_MEMORY,
    COMPACT_UP_TO,
    FIXED,
    MEMORY,
    VERBS,
    FixedCost,
    JobCost,
)

DAY_S: Final = 86_400
#: The part of a core, of a server's memory and of its network that a plan uses.
USE: Final = 0.6
#: Bytes per second of a server's network: 1 Gbit/s.
NETWORK: Final = 125_000_000


@dataclass(frozen=True)
class Load:
    """What a plan is for. Every job is dispatched, processed, collected and removed.

    jobs_per_day: on average. peak: the highest rate as a multiple of the average. payload: bytes of a job's JSON.
    job_s: time that the processor takes for a job. backlog_s: for how long jobs that arrive at the peak may wait.
    keep_s: for how long completed jobs stay. trigger_s: interval of the micro-batches of both streams. memory: bytes of
    memory of a server. compact_up_to: bytes of the longest payload that Redis keeps in compact form. executor_cores:
    those of one executor. partitions: those of a micro-batch that dispatches.
    """

    jobs_per_day: float
    peak: float = 1.0
    payload: int = 1_000
    job_s: float = 0.0
    backlog_s: float = 3_600.0
    keep_s: float = 3_600.0
    trigger_s: float = 10.0
    memory: float = 16e9
    compact_up_to: int = COMPACT_UP_TO
    executor_cores: int = 4
    partitions: int = 4

    @property
    def average(self) -> float:
        """Jobs per second."""
        return self.jobs_per_day / DAY_S

    @property
    def highest(self) -> float:
        """Jobs per second at the peak."""
        return self.average * self.peak


@dataclass(frozen=True)
class Plan:
    """What a load needs at its peak.

    redis_cores, python_cores, jvm_cores, driver_cores: cores that are busy, the driver's among Python's. slots: calls
    of the processor at the same time. memory, network: of Redis, in bytes, and bytes per second. shards: servers with
    one shard each. limits: how many times the load one server, or one driver, carries, by what gives way first.
    """

    redis_cores: float
    python_cores: float
    jvm_cores: float
    driver_cores: float
    slots: float
    memory: float
    network: float
    shards: int
    executors: int
    limits: Mapping[str, float]


def plan(load: Load) -> Plan:
    rate, payload = load.highest, load.payload

    def per_second(cost: Callable[[JobCost], float]) -> float:
        return rate * sum(cost(verb) for verb in VERBS.values())

    def fixed(cost: Callable[[FixedCost], float]) -> float:
        batches = cost(FIXED["dispatching batch"]) + cost(FIXED["collecting batch"])
        return (batches + load.partitions * cost(FIXED["partition"])) / load.trigger_s / 1e3

    redis = per_second(lambda verb: verb.redis.at(payload)) / 1e6 + fixed(lambda one: one.redis)
    python = per_second(lambda verb: verb.python.at(payload)) / 1e6 + fixed(lambda one: one.python)
    jvm = per_second(lambda verb: verb.jvm.at(payload)) / 1e6 + fixed(lambda one: one.jvm)
    driver = rate * COMMIT.at(payload) / 1e6
    network = per_second(lambda verb: verb.network.at(payload))
    of_state = COMPACT_MEMORY if payload <= load.compact_up_to else MEMORY
    waiting = rate * load.backlog_s * of_state["waiting"].at(payload)
    memory = waiting + load.average * load.keep_s * of_state["completed"].at(payload)
    slots = rate * load.job_s
    # A slot of a processor that takes time is a core: functions in threads and coroutines need fewer.
    cores = (python - driver + jvm + slots) / USE
    limits = {
        "Redis' CPU": USE / redis,
        "Redis' memory": USE * load.memory / memory if memory else float("inf"),
        "Redis' network": USE * NETWORK / network,
        "the driver's commit": USE / driver,
    }
    of_server = [limits[name] for name in limits if name.startswith("Redis")]
    return Plan(
        redis_cores=redis,
        python_cores=python,
        jvm_cores=jvm,
        driver_cores=driver,
        slots=slots,
        memory=memory,
        network=network,
        shards=ceil(1 / min(of_server)),
        executors=ceil(cores / load.executor_cores),
        limits=dict(sorted(limits.items(), key=lambda limit: limit[1])),
    )
