"""Reading jobs in portions, while jobs are added, removed and moved; and how much work a portion is for Redis."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import pytest
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob
from spark_bull.core.queue.jobs.portions import MAX_EXAMINED, MAX_SCRIPTS, JobFilter, read_portion
from spark_bull.core.queue.jobs.read import MAX_IDS
from tests.support.traffic import script_work
from tests.support.web import READING, serving
from tests.support.work_bench import NOW, Filled, WorkBench, completed, only_bullmq

HOUR_MS = 3_600_000
#: Many times as many as a portion may examine.
LARGE = 20_000

both_orders = pytest.mark.parametrize("descending", [False, True], ids=["asc", "desc"])


#: Their finished jobs are in a SET and a ZSET.
TWO = ("bull-1", "bullmq")


@pytest.fixture(params=TWO)
def bench(request: pytest.FixtureRequest, client: Redis, open_queue: Callable[..., BullQueue]) -> WorkBench:
    return WorkBench(open_queue("q", request.param), client)


def portions(queue: BullQueue, *states: str, limit: int, **options: Any) -> Iterator[list[str]]:
    """The ids of each portion."""
    place = None
    while True:
        portion = read_portion(queue.handle, states, place, limit, **options)
        assert len(portion.jobs) <= limit
        yield [job.id for job in portion.jobs]
        place = portion.next
        if place is None:
            return


def ids_of(bench: WorkBench, *states: str, limit: int = 50, **options: Any) -> list[str]:
    """The ids of all portions."""
    return [job_id for ids in portions(bench.queue, *states, limit=limit, **options) for job_id in ids]


@both_orders
def test_portions_have_the_order_of_pages(bench: WorkBench, descending: bool) -> None:
    ids = bench.add(40)
    bench.work(completed(bench.claim(11)))
    expected = [job.id for job in bench.queue.page("wait", descending=descending)]
    for limit in (1, 7, 200):
        assert ids_of(bench, "wait", limit=limit, descending=descending) == expected
        assert sorted(ids_of(bench, "completed", limit=limit, descending=descending), key=int) == ids[:11]


@both_orders
def test_portions_of_all_states_have_each_job_once(bench: WorkBench, descending: bool) -> None:
    bench.add(30)
    bench.add(20, delay=HOUR_MS)
    bench.work(completed(bench.claim(12)))
    bench.claim(5)
    found = ids_of(bench, limit=9, descending=descending)
    assert len(found) == len(set(found)) == 50


@only_bullmq
def test_a_search_finds_all_that_fit(bench: WorkBench) -> None:
    bench.add(300)
    bench.queue.add_many([NewJob({"n": n}, name="b") for n in range(17, 20)])
    searches = ((JobFilter(text='"N":17'), 12), (JobFilter(name="b"), 3), (JobFilter(text="18", name="b"), 1))
    for wanted, number in searches:
        fitting = {job.id for job in bench.queue.page("wait") if wanted.accepts(job)}
        assert set(ids_of(bench, wanted=wanted)) == fitting
        assert len(fitting) == number


@only_bullmq
@both_orders
def test_a_range_of_times_is_read_without_the_other_jobs(bench: WorkBench, descending: bool) -> None:
    now = bench.handle.connection.now_ms()
    bench.queue.add_many([NewJob(n, run_at=now + HOUR_MS + n * 1_000, job_id=f"j{n}") for n in range(500)])
    times = {job.id: job.run_at or 0 for job in bench.queue.page("delayed")}
    since, until = times["j100"], times["j119"]
    with script_work(bench.client, prefix=bench.handle.keys.base) as scripts:
        found = ids_of(bench, "delayed", wanted=JobFilter(since=since, until=until), descending=descending, limit=20)
    expected = [f"j{n}" for n in range(100, 120)]
    assert found == (expected[::-1] if descending else expected)
    assert len(scripts) <= 2


@dataclass
class Churn:
    """Adds, removes and moves jobs between two portions, and knows which ones have stayed in their state."""

    bench: WorkBench
    state: str
    rng: random.Random
    stayed: set[str] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=count)

    def add(self, jobs: int) -> list[str]:
        if self.state == "completed":
            self.bench.add(jobs)
            claim = self.bench.claim(jobs)
            self.bench.work(completed(claim))
            return [job.id for job in claim.jobs]
        delay = HOUR_MS if self.state == "delayed" else None
        return self.bench.queue.add_many(
            [
                NewJob(n, delay=delay and delay + self.rng.randrange(5_000), lifo=self.rng.random() < 0.2)
                for n in islice(self.numbers, jobs)
            ]
        ).ids

    def change(self) -> None:
        kind = self.rng.choice(["add", "remove", "take", "remove many"])
        if kind == "add":
            self.add(self.rng.randrange(1, 60))
        elif kind == "take" and self.state == "wait":
            claimed = self.bench.claim(self.rng.randrange(1, 30))
            self.stayed -= {job.id for job in claimed.jobs}
        else:
            jobs = self.bench.queue.counts()[self.state]
            start = self.rng.randrange(jobs) if jobs else 0
            gone = self.bench.queue.page(self.state, start, start + (39 if kind == "remove many" else 2))
            for job in gone:
                self.bench.queue.remove(job.id)
            self.stayed -= {job.id for job in gone}


@pytest.mark.parametrize("state", ["wait", "delayed", "completed"])
def test_no_job_that_stays_in_its_state_is_skipped(bench: WorkBench, state: str) -> None:
    for seed, descending in ((0, False), (1, True)):
        churn = Churn(bench, state, random.Random(seed))
        churn.stayed = set(churn.add(200)) | {job.id for job in bench.queue.page(state)}
        found: set[str] = set()
        for ids in portions(bench.queue, state, limit=20, descending=descending):
            found |= {*ids}
            churn.change()
        assert churn.stayed, "a test that can't fail"
        assert churn.stayed <= found


@only_bullmq
def test_a_place_in_a_list_is_found_again_far_from_where_it_was(bench: WorkBench) -> None:
    ids = bench.add(100)
    portion = read_portion(bench.handle, ["wait"], None, 10, descending=True)
    bench.add(2 * MAX_IDS)
    portion = read_portion(bench.handle, ["wait"], portion.next, 10, descending=True)
    assert [job.id for job in portion.jobs] == ids[80:90][::-1]
    portion = read_portion(bench.handle, ["wait"], None, 10)
    bench.queue.clean(0, 3, "wait")
    following = read_portion(bench.handle, ["wait"], portion.next, 10)
    assert [job.id for job in following.jobs] == ids[10:20]


@pytest.fixture(scope="module", params=TWO)
def large(request: pytest.FixtureRequest) -> Iterator[BullQueue]:
    """A queue with LARGE waiting and LARGE completed jobs."""
    with (
        EmbeddedRedis() as redis,
        BullQueue("q", url=redis.url, protocol=request.param) as queue,
        Redis.from_url(redis.url) as client,
    ):
        filled = Filled(queue, client)
        for start in range(0, LARGE, 5_000):
            for state in ("wait", "completed"):
                filled.put(state, [f"{state}{n}" for n in range(start, start + 5_000)])
        yield queue


#: Maximum number of commands of a script that read one job.
COMMANDS_PER_JOB = 4
#: And some more for a request.
FURTHER_COMMANDS = 150


@pytest.mark.parametrize("state", ["wait", "completed"])
def test_a_page_of_many_jobs_is_little_work_for_redis(large: BullQueue, state: str) -> None:
    url = large.handle.connection.settings.url
    with serving(url=url) as web, Redis.from_url(url) as client:
        for query in ("", "&order=desc", "&text=nothing", "&name=none", f"&from={NOW + 5_000}&to={NOW + 5_010}"):
            cursor = ""
            for _ in range(3):
                before = commands(client)
                with script_work(client) as scripts:
                    path = f"/api/queues/q/jobs?state={state}&limit=100{query}{cursor}"
                    page = web.client.get(path, headers=READING).json()
                examined = MAX_EXAMINED if "=" in query.replace("order=", "") else 100
                assert len(page["jobs"]) <= 100
                # Others find the queue, and sample the numbers of its jobs.
                assert len(scripts) <= MAX_SCRIPTS + 4, "scripts of one page"
                assert all(work.elements < 4 * MAX_IDS for work in scripts), "elements of one script"
                assert commands(client) - before < COMMANDS_PER_JOB * examined + FURTHER_COMMANDS
                if page["next"] is None:
                    break
                cursor = f"&cursor={page['next']}"


def commands(client: Redis) -> int:
    """The number of commands that the server has run, also in scripts."""
    return int(client.info("stats")["total_commands_processed"])


def test_paging_through_many_jobs_finds_each_once(large: BullQueue) -> None:
    found = [job_id for ids in portions(large, "completed", limit=500) for job_id in ids]
    assert len(found) == len(set(found)) == LARGE
