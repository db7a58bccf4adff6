"""The short forms of `make faults` and `make soak`, and what their books, orders and slopes would pass silently."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, Job
from tests.proof.actors import drive
from tests.proof.books import Books, Cell, balance
from tests.proof.faults import FAULTS
from tests.proof.histories import KINDS, first_found, violations
from tests.proof.orders import EveryOrder, Setting
from tests.proof.planted.errors import OF_HISTORIES, Planted
from tests.proof.producers import PRODUCERS, Notes, Place
from tests.proof.protocols import PROTOCOLS, Ledger, Protocol, Schedule
from tests.proof.run import run
from tests.proof.soak.accounts import Account, accounts, collected, worked
from tests.proof.soak.memory import Size, Slope, slope
from tests.proof.soak.programs import ALL_QUEUES, PROGRAMS, expected
from tests.proof.soak.report import TITLES as ACCOUNTS
from tests.proof.soak.report import broken
from tests.proof.soak.run import soak
from tests.proof.table import TITLES, wrong_orders
from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def own() -> Iterator[Redis]:
    """A server of which histories move the clock, and that each order begins empty."""
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
def queue(own: Redis) -> Iterator[BullQueue]:
    with BullQueue("q", url=url_of(own), protocol="bullmq") as queue:
        yield queue


def url_of(client: Redis) -> str:
    return f"redis://localhost:{client.get_connection_kwargs()['port']}"


@pytest.mark.parametrize(("workload", "dialect"), KINDS)
def test_one_order_explains_a_history(own: Redis, workload: str, dialect: str) -> None:
    assert violations(own, workload, 0, dialect) == []


@pytest.mark.parametrize("error", OF_HISTORIES, ids=str)
def test_no_order_explains_a_history_of_scripts_with_this_error(own: Redis, error: Planted) -> None:
    assert first_found(own, error) is not None


def tried(own: Redis, mortal: list[str], **parties: Callable[[], object]) -> EveryOrder:
    def begin() -> Setting:
        own.flushall()
        return Setting(parties, mortal, lambda: "")

    return EveryOrder(own, begin)


def test_each_order_is_tried_and_each_death_before_and_after_a_call(own: Redis, queue: BullQueue) -> None:
    """a can die before its first call (1 order), after it (3), or after the second one (6), or live (6)."""

    def caller(name: str) -> Callable[[], object]:
        return lambda: [queue.handle.connection.call("RPUSH", "calls", name) for _ in range(2)]

    orders = tried(own, ["a"], a=caller("a"), b=caller("b"))
    left = [b"".join(own.lrange("calls", 0, -1)) for _ in orders.tried()]
    assert {*left} >= {b"bb", b"abb", b"bab", b"bba", b"aabb", b"abab", b"abba", b"baab", b"baba", b"bbaa"}
    assert orders.count == 16


def test_an_update_that_is_lost_in_some_orders_is_found(own: Redis, queue: BullQueue) -> None:
    connection = queue.handle.connection

    def count_up() -> None:
        connection.call("SET", "n", int(connection.call("GET", "n") or 0) + 1)

    assert {own.get("n") for _ in tried(own, [], a=count_up, b=count_up).tried()} == {b"1", b"2"}


@pytest.mark.parametrize(
    "kind", [pytest.param(one, marks=pytest.mark.rest if one in (Ledger, Schedule) else ()) for one in PROTOCOLS]
)
def test_no_order_of_the_calls_of_a_protocol_breaks_a_promise(own: Redis, kind: type[Protocol]) -> None:
    orders = EveryOrder(own, (protocol := kind(own, url_of(own))).begin)
    assert [*wrong_orders(protocol, orders)] == []
    assert orders.count > 40


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("fault", ["driver killed", pytest.param("executor killed", marks=pytest.mark.rest)])
def test_the_books_balance(fault: str) -> None:
    names = ("write", "sequence", "most")
    times, cells = run(FAULTS[fault], seed=1, versions=2, names=names, patience_s=PATIENCE_S)
    assert times > 0
    assert {name: cell for name, cell in cells.items() if cell.broken} == {}
    assert cells.keys() == {"write", "sequence", "most", "worker", "results"}


def test_books_show_what_is_lost_twice_and_stuck(tmp_path: Path) -> None:
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client:
        place = Place(server.url, "proof", Notes(tmp_path / "notes"), versions=1, names=tuple(PRODUCERS))
        drive(place)
        before = balance(Books.read(place, client))
        assert (before["write"], before["manage"]) == (Cell(), Cell())
        with place.queue("write") as queue:
            first, second, *_ = queue.page("wait")
            queue.add(second.data)
            queue.remove(first.id)
        for _ in range(2):
            place.notes.add("start", "most", job_id="1")
        cells = balance(Books.read(place, client))
    assert cells["write"]._replace(out_of_order=0) == Cell(lost=1, twice=1)
    assert cells["most"] == Cell(twice=1, stuck=6)
    assert cells["worker"] == Cell(stuck=64)
    assert [str(cell) for cell in (Cell(), Cell(repeats=3, stuck=1))] == ["0", "3 repeats, 1 stuck"]
    assert [cell.broken for cell in (Cell(stuck=1), Cell(repeats=3))] == [True, False]


def test_the_page_has_each_promise_fault_planted_error_protocol_and_account() -> None:
    page = (ROOT / "docs/concepts/proof.md").read_text("utf-8")
    named = [*TITLES.values(), *ACCOUNTS.values(), *FAULTS, *map(str, OF_HISTORIES), *(one.title for one in PROTOCOLS)]
    assert [name for name in named if name not in page] == []
    table = (ROOT / "README.md").read_text("utf-8").partition("## Guarantees")[2].partition("\n## ")[0]
    lines = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")][2:]
    assert lines
    assert {*lines} <= {*TITLES.values()}


@pytest.mark.soak
@pytest.mark.usefixtures("node_packages")
def test_the_books_of_all_at_once_balance() -> None:
    report = soak(2, seed=1)
    assert broken(report) == []
    assert report.faults.total() > 0


def ended(queue: str, row: str, job_id: str, state: str = "completed", **fields: object) -> Job:
    data = json.dumps({"row": row, "key": row[-1], "tenant": "t0"})
    return Job(queue, job_id, state, data_text=data, attempts_started=1, attempts_made=1, **fields)


def test_accounts_show_what_is_lost_twice_stuck_or_wrong(tmp_path: Path) -> None:
    """Of one version of each program."""
    books = Books(Place("", "soak", Notes(tmp_path / "notes"), 1, tuple(PROGRAMS)))
    books.acked = {(name, 1) for name in (*PROGRAMS, "add_many", "frame")}
    for queue in ALL_QUEUES:
        books.add(queue, [])
    assert all(one.broken for name, one in accounts(books, Counter(), 20).items() if name != "schedule")

    def account(name: str, jobs: list[Job], deduplicated: int = 0) -> Account:
        books.add(name, jobs)
        return accounts(books, Counter({name: deduplicated}), streamed=0)[name]

    jobs = [ended("write", row, str(n)) for n, row in enumerate(expected("write", 1)["write"])]
    assert not account("write", jobs).broken
    assert (account("write", jobs[1:]).cell, account("write", jobs[1:]).balances) == (Cell(lost=1), False)
    assert account("write", [*jobs, ended("write", "write.1.0", "9")]).cell.twice == 1
    assert account("retry", [ended("retry", "retry.1.2", "1", "wait")]).cell == Cell(lost=5, stuck=1)
    jobs = [ended("unique", row, str(n)) for n, row in enumerate(expected("unique", 1)["unique"][:4])]
    assert [account("unique", jobs, deduplicated).broken for deduplicated in (1, 2)] == [True, False]
    assert account("expire", [ended("expire", row, row) for row in expected("expire", 1)["expire"]]).wrong == 3
    times = zip(expected("group", 1)["group"], [(0, 10), (5, 12), (10, 15), (11, 13)], strict=False)
    jobs = [ended("group", row, row, processed_on=at, finished_on=end) for row, (at, end) in times]
    assert account("group", jobs).cell == Cell(lost=2, out_of_order=1)
    again = Job("write", "2", "completed", attempts_started=3, attempts_made=1)
    books.jobs = {"write": [ended("write", "write.1.0", "1"), again]}
    books.ends.update([("write", "1"), ("write", "1"), ("write", "2"), ("write", "3")])
    assert worked(books) == Cell(repeats=2, twice=1)
    assert collected(books, Counter([("write", "1"), ("write", "1"), ("write", "2")])) == Cell(lost=1, twice=1)


def test_memory_that_grows_is_told_from_memory_that_varies_or_has_no_line() -> None:
    random, mb = Random(7), 1 << 20
    ages = [60 + at % 300 for at in range(0, 1800, 5)]
    noisy = [Size(5 * n, (200 + random.uniform(-5, 5) + age / 10) * mb, age) for n, age in enumerate(ages)]
    leak = [size._replace(size=size.size + 0.05 * size.at * mb) for size in noisy]
    flat, steep = slope(noisy), slope(leak)
    assert isinstance(flat, Slope)
    assert isinstance(steep, Slope)
    assert (flat.grows, steep.grows) == (False, True)
    assert steep.per_hour == pytest.approx(180, rel=0.1)
    assert slope(noisy[:5]) is None
    often = [Size(at, 100 << 20, 60 + at % 60) for at in range(0, 600, 5)]
    assert str(slope(often)) == "100.0 | no line: started again 9 times, and at most 1.9 minutes old"
    several = [Size(at, 100 << 20, 60 + at, processes=3 + at % 2) for at in range(0, 600, 5)]
    assert str(slope(several)) == "100.0 | no line: 3 to 4 processes, which come and go"
