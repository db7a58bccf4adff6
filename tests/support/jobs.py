"""Job lists in a library-neutral form: {"name", "data", "opts"}, as the Node library's own `add` takes them.

One generator is used for seeded lists (`random_jobs`) and for Hypothesis (`job_lists`). Every delay ends at least an
hour from now, so that no job becomes due during a test, and within 20 days, as Bull 1 passes delays to setTimeout.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

from hypothesis import strategies as st

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


def job_lists(dialect: str, *, max_size: int = 12, custom_ids: bool = True) -> st.SearchStrategy[list[Job]]:
    """A Hypothesis strategy for such lists, but shorter."""
    return st.builds(
        lambda random, count: random_jobs(random, dialect, count, custom_ids=custom_ids, big=False),
        st.randoms(use_true_random=False),
        st.integers(1, max_size),
    )


def new_job_arguments(job: Job) -> dict[str, Any]:
    """The same job as arguments of `spark_bull.core.model.jobs.NewJob`."""
    named = {
        "jobId": "job_id",
        "delay": "delay",
        "priority": "priority",
        "attempts": "attempts",
        "backoff": "backoff",
        "lifo": "lifo",
        "removeOnComplete": "remove_on_complete",
        "removeOnFail": "remove_on_fail",
        "timestamp": "timestamp",
        "deduplication": "deduplication",
    }
    opts = job.get("opts") or {}
    return {
        "data": job["data"],
        "name": job.get("name"),
        **{ours: opts[theirs] for theirs, ours in named.items() if theirs in opts},
        "opts": {name: value for name, value in opts.items() if name not in named},
    }


class _Maker:
    def __init__(self, random: Random, dialect: str, now: int, custom_ids: bool) -> None:
        self.random = random
        self.dialect = dialect
        self.now = now
        self.custom_ids = custom_ids
        self.ids: list[str] = []
        # Some jobs share a due time: the low bits of the score keep their order.
        self.shared_timestamp = now - 2 * HOUR
        self.shared_delays = [5 * HOUR, 2 * DAY]

    def job(self) -> Job:
        job: Job = {"data": self.payload(), "opts": self.opts()}
        if self.dialect != "bull-1":
            job["name"] = self.random.choice(NAMES)
        return job

    def payload(self) -> Any:
        return self.random.choice(
            [
                dict,
                lambda: {"text": self.random.choice(TEXTS)},
                lambda: {self.random.choice(TEXTS): self.random.choice(NUMBERS)},
                lambda: self.value(depth=4),
                lambda: [self.value(depth=2) for _ in range(self.random.randint(0, 3))],
                lambda: self.random.choice([None, True, False, 0, "", "text", 42, 0.5]),
            ]
        )()

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

    def opts(self) -> dict[str, Any]:
        opts: dict[str, Any] = {}
        for chance, option in (
            (0.3, self.timing),
            (0.25, self.priority),
            (0.2, self.lifo),
            (0.3, self.job_id),
            (0.3, self.attempts),
            (0.3, self.backoff),
            (0.3, self.removal),
            (0.3, self.others),
        ):
            if self.random.random() < chance:
                opts |= option()
        return opts

    def timing(self) -> dict[str, Any]:
        timestamp = self.now - self.random.randint(2 * HOUR, 30 * DAY)
        late = self.now - timestamp + self.random.randint(HOUR, 15 * DAY)
        return self.random.choice(
            [
                lambda: {"timestamp": timestamp},
                lambda: {"timestamp": timestamp, "delay": 0},
                lambda: {"timestamp": timestamp, "delay": late},
                lambda: {"timestamp": timestamp, "delay": HOUR},  # due in the past
                lambda: {"timestamp": self.shared_timestamp, "delay": self.random.choice(self.shared_delays)},
                lambda: {"timestamp": self.shared_timestamp, "delay": self.shared_delays[0]},
                # Whole minutes, so that the time between two adds does not change the order of due times.
                lambda: {"delay": self.random.randint(60, 20_000) * 60_000},
            ]
        )()

    def priority(self) -> dict[str, Any]:
        if self.dialect == "bull-1":
            return {}
        highest = 2**21 - 1 if self.dialect == "bullmq" else 1_000_000
        return {"priority": self.random.choice([0, 1, 1, 2, 3, 10, 10, highest])}

    def lifo(self) -> dict[str, Any]:
        return {"lifo": self.random.choice([True, True, False])}

    def job_id(self) -> dict[str, Any]:
        if not self.custom_ids:
            return {}
        if self.ids and self.random.random() < 0.3:
            return {"jobId": self.random.choice(self.ids)}
        number = self.random.randint(0, 10**9)
        shapes = [f"job-{number}", f"naïve {number} 🚀", f"{number}x", f"x{number}" * 20]
        # BullMQ accepts ids with exactly two colons and refuses integers; the others accept any id. Integers are far
        # above the id counter, which must not reach them.
        shapes += [f"a:b{number}:c"] if self.dialect == "bullmq" else [str(10**12 + number)]
        self.ids.append(self.random.choice(shapes))
        return {"jobId": self.ids[-1]}

    def attempts(self) -> dict[str, Any]:
        return {"attempts": self.random.choice([0, 1, 2, 3, 10])}

    def backoff(self) -> dict[str, Any]:
        choices: list[Any] = [
            0,
            500,
            {"type": "fixed", "delay": 1000},
            {"type": "exponential", "delay": 250},
            {"type": "custom-strategy"},
        ]
        if self.dialect == "bull":
            choices += [{"type": "custom-strategy", "options": {"factor": 2}}]
        if self.dialect == "bullmq":
            choices += [
                {"type": "fixed", "delay": 1000, "jitter": 0.5},
                {"type": "exponential", "delay": 250, "jitter": 1},
                {"type": "exponential", "delay": 250, "jitter": 0},
            ]
        return {"backoff": self.random.choice(choices)}

    def removal(self) -> dict[str, Any]:
        choices: list[Any] = [True, False]
        if self.dialect != "bull-1":
            choices += [0, 1, 100, {"count": 10}, {"age": 3600}, {"age": 3600, "count": 10}]
        if self.dialect == "bullmq":
            choices += [{"age": 3600, "limit": 5}]
        names = ["removeOnComplete", "removeOnFail"]
        return {name: self.random.choice(choices) for name in self.random.sample(names, self.random.randint(1, 2))}

    def others(self) -> dict[str, Any]:
        choices: list[dict[str, Any]] = [
            {"stackTraceLimit": 5},
            {"stackTraceLimit": 0},
            {"timeout": 30_000},
            {"tenant": "ünknown option", "nested": {"list": [1, 2.5, "x", True], "map": {"k": "v"}}},
        ]
        if self.dialect == "bull":
            choices += [{"preventParsingData": True}]
        if self.dialect == "bullmq":
            choices += [
                {"keepLogs": 7},
                {"sizeLimit": 10_000_000},
                {"failParentOnFailure": True},
                {"continueParentOnFailure": True},
                {"ignoreDependencyOnFailure": True},
                {"removeDependencyOnFailure": True},
                {"telemetry": {"metadata": "trace-1"}},
                {"telemetry": {"metadata": "trace-2", "omitContext": True}},
                {"telemetry": {"omitContext": True}},
            ]
        return dict(self.random.choice(choices))
