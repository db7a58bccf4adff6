"""The short form of `make faults`: a cell, and what its table has."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from spark_bull.embedded.redis import EmbeddedRedis
from tests.proof.actors import drive
from tests.proof.books import Books, Cell, balance
from tests.proof.faults import FAULTS
from tests.proof.mutants import MUTANTS
from tests.proof.notes import Notes
from tests.proof.producers import Place
from tests.proof.protocols import PROTOCOLS
from tests.proof.run import run
from tests.proof.table import TITLES
from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("fault", ["driver killed", "executor killed"])
def test_the_books_balance(fault: str) -> None:
    names = ("write", "sequence", "most")
    times, cells = run(FAULTS[fault], seed=1, versions=2, names=names, patience_s=PATIENCE_S)
    assert times > 0
    assert {name: cell for name, cell in cells.items() if cell.broken} == {}
    assert cells.keys() == {"write", "sequence", "most", "worker", "results"}


def test_books_show_what_is_lost_twice_and_stuck(tmp_path: Path) -> None:
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client:
        place = Place(server.url, "proof", Notes(tmp_path / "notes"), versions=1, names=("write", "most"))
        drive(place)
        assert balance(Books.read(place, client))["write"] == Cell()
        with place.queue("write") as queue:
            first, second, *_ = queue.page("wait")
            queue.add(second.data)
            queue.remove(first.id)
        for _ in range(2):
            place.notes.add("start", "most", job_id="1")
        cells = balance(Books.read(place, client))
    assert cells["write"]._replace(out_of_order=0) == Cell(lost=1, twice=1)
    assert cells["most"] == Cell(twice=1, stuck=6)
    assert cells["worker"] == Cell(stuck=6)


def test_cells_show_what_is_not_zero() -> None:
    assert str(Cell()) == "0"
    assert str(Cell(repeats=3, stuck=1)) == "3 repeats, 1 stuck"
    assert Cell(stuck=1).broken
    assert not Cell(repeats=3).broken


def test_the_page_has_each_promise_fault_planted_error_and_protocol() -> None:
    page = (ROOT / "docs/concepts/proof.md").read_text("utf-8")
    named = [*TITLES.values(), *FAULTS, *map(str, MUTANTS), *(one.title for one in PROTOCOLS)]
    assert [name for name in named if name not in page] == []


def test_each_line_of_the_guarantees_of_the_readme_is_a_row() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    table = text.partition("## Guarantees")[2].partition("\n## ")[0]
    lines = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")][2:]
    assert {line for line in lines if line not in TITLES.values()} == set()
