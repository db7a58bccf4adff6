"""Job lists in a library-neutral form: {"name", "data", "opts"}, as the Node library's own `add` takes them.

Every delay ends at least an hour from now, so that no job becomes due during a test, and within 20 days, as Bull 1
passes delays to setTimeout.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Any

Job = dict[str, Any]

HOUR = 3_600_000
DAY = 24 * HOUR
BIG = 100_000

TEXTS = [
    "",
    "plain",
    "naïve café",
    "日本語のテキスト",
    "🚀👩‍🚀",
    "مرحبا",
    "quotes \" and \\ and / and '",
    "line\nbreak\ttab\r",
    "\u0000\u0001\b\f\u001f\u007f",
    "\u2028\u2029\ufeff",
    "$1 %s {{}} <b>&amp;</b>",
]
# No whole floats and no exponents: Python writes 1000.0 and 1e-07 where JavaScript writes 1000 and 1e-7.
NUMBERS = [0, 1, -1, 42, 0.5, -2.75, 3.14159, 2**31, 2**53 - 1, -(2**53 - 1), 1_700_000_000_123]
NAMES = ["send", "resize", "e-mail", "naïve", "🚀", "two words", "a:b", "__default__", "0"]


def job(behaviour: str = "", **opts: Any) -> Job:
    """A job of tests/node/behaviours.js."""
    return {"name": "task", "data": {"$behaviour": behaviour} if behaviour else {}, "opts": opts}


def random_jobs(
    random: Random,
    dialect: str,
    count: int = 100,
    *,
    custom_ids: bool = True,
    big: bool = True,
    now: int | None = None,
) -> list[Job]:
    """A list of jobs with every option of the dialect, each in some job, and some ids twice."""
    moment = now or time.time_ns() // 1_000_000
    made = _Maker(random, dialect, moment, custom_ids)
    jobs = [made.job() for _ in range(count)]
    if big and jobs:
        random.choice(jobs)["data"] = {"big": made.big_text()}
    return jobs


def new_job_arguments(job: Job) -> dict[str, Any]:
    """The same job as arguments of `spark_bull.core.model.jobs.NewJob`."""
    named = {"jobId": "job_id", "removeOnComplete": "remove_on_complete", "removeOnFail": "remove_on_fail"}
    named |= {name: name for name in ("delay", "priority", "attempts", "backoff", "lifo", "timestamp", "deduplication")}
    opts = job.get("opts") or {}
    return {
        "data": job["data"],
        "name": job.get("name"),
        **{ours: opts[theirs] for theirs, ours in named.items() if theirs in opts},
        "opts": {name: value for name, value in opts.items() if name not in named},
    }


class _Maker:
    """Makes jobs of a dialect; `ids`: the custom ids so far."""

    def __init__(self, random: Random, dialect: str, now: int, custom_ids: bool) -> None:
        self.random, self.dialect, self.now, self.custom_ids = random, dialect, now, custom_ids
        self.ids: list[str] = []

    def job(self) -> Job:
        job: Job = {"data": self.payload(), "opts": {}}
        for chance, choices in self.options():
            if self.random.random() < chance:
                job["opts"] |= self.random.choice(choices)
        if "jobId" in job["opts"]:
            self.ids.append(job["opts"]["jobId"])
        if self.dialect != "bull-1":
            job["name"] = self.random.choice(NAMES)
        return job

    def payload(self) -> Any:
        plain = self.random.choice([None, True, False, 0, "", "text", 42, 0.5])
        few = [self.value(depth=2) for _ in range(self.random.randint(0, 3))]
        text, number = self.random.choice(TEXTS), self.random.choice(NUMBERS)
        return self.random.choice([{}, {"text": text}, {text: number}, self.value(depth=4), few, plain])

    def value(self, depth: int) -> Any:
        if depth and self.random.random() < 0.7:
            size = self.random.randint(0, 3)
            if self.random.random() < 0.5:
                return [self.value(depth - 1) for _ in range(size)]
            # Never only digits: JavaScript moves such keys to the front.
            return {f"k{n}{self.random.choice(TEXTS)}": self.value(depth - 1) for n in range(size)}
        return self.random.choice([self.random.choice(TEXTS), self.random.choice(NUMBERS), True, False, None])

    def big_text(self) -> str:
        return "".join(self.random.choice('abc ñ漢\n"') for _ in range(BIG))

    def options(self) -> Iterator[tuple[float, list[dict[str, Any]]]]:
        """The probability of each option, and the values of which a job has one."""
        yield 0.3, self.timing()
        if self.custom_ids:
            yield 0.3, [{"jobId": one} for one in (*self.new_ids(), *self.ids[-2:])]
        yield 0.2, [{"lifo": True}, {"lifo": True}, {"lifo": False}]
        yield 0.3, [{"attempts": attempts} for attempts in (0, 1, 2, 3, 10)]
        kinds = ["fixed", "exponential"]
        backoffs: list[Any] = [0, 500, *({"type": kind, "delay": 1000} for kind in kinds), {"type": "custom-strategy"}]
        keeps: list[Any] = [True, False]
        others: list[dict[str, Any]] = [
            *({"stackTraceLimit": 5}, {"stackTraceLimit": 0}, {"timeout": 30_000}),
            {"tenant": "ünknown option", "nested": {"list": [1, 2.5, "x", True], "map": {"k": "v"}}},
        ]
        if self.dialect != "bull-1":
            highest = 2**21 - 1 if self.dialect == "bullmq" else 1_000_000
            yield 0.25, [{"priority": priority} for priority in (0, 1, 1, 2, 3, 10, 10, highest)]
            keeps += [0, 1, 100, {"count": 10}, {"age": 3600}, {"age": 3600, "count": 10}]
        if self.dialect == "bull":
            backoffs += [{"type": "custom-strategy", "options": {"factor": 2}}]
            others += [{"preventParsingData": True}]
        if self.dialect == "bullmq":
            backoffs += [{"type": kind, "delay": 250, "jitter": jitter} for kind in kinds for jitter in (0, 0.5, 1)]
            keeps += [{"age": 3600, "limit": 5}]
            others += [{"keepLogs": 7}, {"sizeLimit": 10_000_000}]
            others += [{f"{policy}OnFailure": True} for policy in ("failParent", "continueParent")]
            others += [{f"{policy}DependencyOnFailure": True} for policy in ("ignore", "remove")]
            telemetries = ({"metadata": "trace-1"}, {"metadata": "trace-2", "omitContext": True}, {"omitContext": True})
            others += [{"telemetry": telemetry} for telemetry in telemetries]
        yield 0.3, [{"backoff": backoff} for backoff in backoffs]
        for name in ("removeOnComplete", "removeOnFail"):
            yield 0.2, [{name: keep} for keep in keeps]
        yield 0.3, others

    def timing(self) -> list[dict[str, Any]]:
        timestamp = self.now - self.random.randint(2 * HOUR, 30 * DAY)
        late = self.now - timestamp + self.random.randint(HOUR, 15 * DAY)
        # Some jobs share a due time: the low bits of the score keep their order.
        shared = [{"timestamp": self.now - 2 * HOUR, "delay": delay} for delay in (5 * HOUR, 5 * HOUR, 2 * DAY)]
        due_in_the_past = {"timestamp": timestamp, "delay": HOUR}
        # Whole minutes, so that the time between two adds does not change the order of due times.
        delayed = {"delay": self.random.randint(60, 20_000) * 60_000}
        late_ones = [{"timestamp": timestamp, "delay": delay} for delay in (0, late)]
        return [{"timestamp": timestamp}, *late_ones, due_in_the_past, *shared, delayed]

    def new_ids(self) -> list[str]:
        number = self.random.randint(0, 10**9)
        # BullMQ accepts ids with exactly two colons and refuses integers; the others accept any id. Integers are far
        # above the id counter, which must not reach them.
        last = f"a:b{number}:c" if self.dialect == "bullmq" else str(10**12 + number)
        return [f"job-{number}", f"naïve {number} 🚀", f"{number}x", f"x{number}" * 20, last]
