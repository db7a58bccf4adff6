"""The short form of the soak, for its development, and what its books and slopes show."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_bull.model.jobs import Job
from tests.proof.books import Books, Cell
from tests.proof.notes import Notes
from tests.proof.producers import Place
from tests.proof.soak import parties
from tests.proof.soak.accounts import Account, accounts, collected, worked
from tests.proof.soak.memory import Size, Slope, slope
from tests.proof.soak.parties import Parties, SparkDriver
from tests.proof.soak.processes import Process
from tests.proof.soak.programs import ALL_QUEUES, PROGRAMS, expected
from tests.proof.soak.report import TITLES, broken
from tests.proof.soak.results import committed_files
from tests.proof.soak.run import soak

ROOT = Path(__file__).parents[2]
MINUTES = 2


@pytest.mark.soak
@pytest.mark.usefixtures("node_packages")
def test_the_books_of_all_at_once_balance() -> None:
    report = soak(MINUTES, seed=1)
    assert broken(report) == []
    assert report.faults.total() > 0


def ended(queue: str, row: str, job_id: str, state: str = "completed", **fields: object) -> Job:
    data = json.dumps({"row": row, "key": row[-1], "tenant": "t0"})
    return Job(queue, job_id, state, data_text=data, attempts_started=1, attempts_made=1, **fields)  # type: ignore[arg-type]


@pytest.fixture
def books(tmp_path: Path) -> Books:
    """Of one version of each program, without a job."""
    books = Books(Place("", "soak", Notes(tmp_path / "notes"), 1, tuple(PROGRAMS)))
    books.acked = {(name, 1) for name in (*PROGRAMS, "add_many", "frame")}
    for queue in ALL_QUEUES:
        books.add(queue, [])
    return books


def account(books: Books, name: str, jobs: list[Job], deduplicated: int = 0) -> Account:
    books.add(name, jobs)
    return accounts(books, Counter({name: deduplicated}), streamed=0)[name]


def test_a_row_is_lost_that_is_no_result(books: Books) -> None:
    assert all(one.broken for name, one in accounts(books, Counter(), 20).items() if name != "schedule")
    jobs = [ended("write", row, str(n)) for n, row in enumerate(expected("write", 1)["write"])]
    assert not account(books, "write", jobs).broken
    short = account(books, "write", jobs[1:])
    assert (short.cell, short.balances) == (Cell(lost=1), False)
    assert account(books, "write", [*jobs, ended("write", "write.1.0", "9")]).cell.twice == 1
    waiting = account(books, "retry", [ended("retry", "retry.1.2", "1", "wait")])
    assert (waiting.cell, waiting.balances) == (Cell(lost=5, stuck=1), False)


def test_rows_that_were_deduplicated_are_in_the_balance(books: Books) -> None:
    jobs = [ended("unique", row, str(n)) for n, row in enumerate(expected("unique", 1)["unique"][:4])]
    assert not account(books, "unique", jobs, deduplicated=2).broken
    assert account(books, "unique", jobs, deduplicated=1).broken


def test_an_outcome_that_the_payload_does_not_ask_for_is_wrong(books: Books) -> None:
    rows = expected("expire", 1)["expire"]
    assert account(books, "expire", [ended("expire", row, row) for row in rows]).wrong == 3
    rows = expected("retry", 1)["retry"]
    jobs = [ended("retry", row, row, "completed" if n % 3 else "failed") for n, row in enumerate(rows)]
    assert account(books, "retry", jobs).wrong == 0


def test_more_jobs_of_a_tenant_at_once_than_may_run_are_counted(books: Books) -> None:
    times = [(0, 10), (5, 12), (10, 15), (11, 13)]
    rows = expected("group", 1)["group"]
    jobs = [ended("group", row, row, processed_on=at, finished_on=end) for row, (at, end) in zip(rows, times)]  # noqa: B905
    assert account(books, "group", jobs).cell == Cell(lost=2, out_of_order=1)


def test_repeated_starts_and_outcomes_and_results_are_counted(books: Books) -> None:
    again = ended("write", "write.1.0", "1")
    books.add("write", [again, Job("write", "2", "completed", attempts_started=3, attempts_made=1)])
    books.ends.update([("write", "1"), ("write", "1"), ("write", "2"), ("write", "3")])
    assert worked(books) == Cell(repeats=2, twice=1)
    assert collected(books, Counter([("write", "1"), ("write", "1"), ("write", "2")])) == Cell(lost=1, twice=1)


def test_memory_that_grows_is_told_from_memory_that_varies() -> None:
    random, mb = Random(7), 1 << 20
    ages = [60 + at % 300 for at in range(0, 1800, 5)]
    noisy = [Size(5 * n, (200 + random.uniform(-5, 5) + age / 10) * mb, age) for n, age in enumerate(ages)]
    found = slope(noisy)
    assert isinstance(found, Slope)
    assert not found.grows
    assert abs(found.per_hour) < 20
    leak = slope([size._replace(size=size.size + 0.05 * size.at * mb) for size in noisy])
    assert isinstance(leak, Slope)
    assert leak.grows
    assert leak.per_hour == pytest.approx(180, rel=0.1)
    assert slope(noisy[:5]) is None


def test_a_process_that_is_started_again_and_again_has_no_line() -> None:
    lives = [Size(at, 100 << 20, 60 + at % 60) for at in range(0, 600, 5)]
    assert str(slope(lives)) == "100.0 | no line: started again 9 times, and at most 1.9 minutes old"
    # Each is measured only once, at the same age.
    assert str(slope([Size(100 * n, 100 << 20, 60) for n in range(20)])).endswith(
        "no line: started again 19 times, and at most 1.0 minutes old"
    )
    # Of Redis, which is started again with its data.
    assert isinstance(slope([Size(at, 100 << 20) for at in range(0, 600, 5)]), Slope)


def test_processes_that_come_and_go_have_no_line() -> None:
    samples = [Size(at, 100 << 20, 60 + at, processes=3 + at % 2) for at in range(0, 600, 5)]
    assert str(slope(samples)) == "100.0 | no line: 3 to 4 processes, which come and go"


def test_each_process_of_a_spark_driver_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    mb, driver, old = 1 << 20, object.__new__(SparkDriver), 400
    monkeypatch.setattr(SparkDriver, "pid", 7)
    listed = [
        Process(7, 7, old, 150 * mb, "python"),
        Process(8, 7, old - 5, 800 * mb, "java"),
        Process(9, 7, old - 9, 35 * mb, "python"),
        Process(10, 7, 0, 95 * mb, "python"),
        Process(11, 11, old, 60 * mb, "python"),
    ]
    monkeypatch.setattr(parties, "processes", lambda: listed)
    both = Parties({})
    both.running = {"driver": driver}
    python = {
        "driver: Python": Size(500.0, 150 * mb, old, 1),
        "driver: Python of tasks and sources": Size(500.0, 130 * mb, old, 2),
    }
    assert both.sizes(500.0) == python | {"driver: JVM": Size(500.0, 800 * mb, old, 1)}
    listed = [one._replace(age=one.age - 200) for one in listed]
    # A JVM grows for longer.
    assert both.sizes(300.0).keys() == python.keys()
    listed = [one._replace(age=one.age - 200) for one in listed]
    assert both.sizes(100.0) == {}


def test_only_files_of_committed_batches_are_read(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name in ("a", "b", "c", "uncommitted"):
        pq.write_table(pa.table({"id": [name]}), tmp_path / f"{name}.parquet")
    entry = {name: json.dumps({"path": f"file://{tmp_path}/{name}.parquet"}) for name in "abc"}
    (log / "0").write_text(f"v1\n{entry['a']}")
    (log / "1.compact").write_text(f"v1\n{entry['a']}\n{entry['b']}")
    (log / "2").write_text(f"v1\n{entry['c']}")
    assert [file.stem for file in committed_files(tmp_path)] == ["a", "b", "c"]


def test_the_page_has_each_account() -> None:
    page = (ROOT / "docs/concepts/proof.md").read_text("utf-8")
    assert [title for title in TITLES.values() if title not in page] == []
