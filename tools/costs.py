"""CPU time of tests: a plugin of pytest (`-p tools.costs`), which writes a file per process to the
folder of SPARK_BULL_TEST_COSTS. `python -m tools.costs FOLDER` writes tables of them to tests/README.md.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
#: Names of processes, and what the tables call them.
KINDS: Final = {"java": "JVM", "python": "Python", "node": "Node", "redis": "Redis", "valkey": "Redis"}
#: How many files and fixtures, and how many tests are listed.
LISTED: Final = 12
LISTED_TESTS: Final = 50
README: Final = Path(__file__).parents[1] / "tests" / "README.md"
HEADING: Final = "## What the tests cost"

#: CPU time, s, by table and name.
_costs: Final[dict[str, Counter[str]]] = {name: Counter() for name in ("part", "process", "fixture", "test")}


def _cpu_by_kind(pid: int) -> Counter[str]:
    """CPU time so far of a process, its descendants, and their children that have ended, s, by kind of process."""
    found: Counter[str] = Counter()
    try:
        name, _, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        children = [one.read_text().split() for one in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return found
    kind = next((kind for start, kind in KINDS.items() if name.startswith(start)), "others")
    found.update({kind: sum(map(int, fields.split()[11:15])) / TICKS_PER_S})
    for child in chain.from_iterable(children):
        found.update(_cpu_by_kind(int(child)))
    return found


def _measured(note: Callable[[Counter[str]], None]) -> Generator[None, Any, Any]:
    before = _cpu_by_kind(os.getpid())
    try:
        return (yield)
    finally:
        note(_cpu_by_kind(os.getpid()) - before)


def _measured_test(name: str, parts: Iterable[str]) -> Generator[None, Any, Any]:
    def note(used: Counter[str]) -> None:
        _costs["process"].update(used)
        _costs["test"].update({name: used.total()})
        _costs["part"].update(dict.fromkeys(parts, used.total()))

    return (yield from _measured(note))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _measured_test(item.nodeid, _parts(item)))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    return (yield from _measured(lambda used: _costs["fixture"].update({fixturedef.argname: used.total()})))


def _parts(item: pytest.Item) -> Iterator[str]:
    yield "make test-rest" if item.get_closest_marker("rest") else "make test"
    if hasattr(getattr(item, "obj", None), "hypothesis"):
        yield "tests with Hypothesis"
    if "spark" in getattr(item, "fixturenames", ()):
        yield "tests with the shared Spark"
    elif item.get_closest_marker("spark"):
        yield "tests that start Spark"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    return (yield from _measured_test("(collection)", ["collection, once per process"]))


def pytest_sessionfinish() -> None:
    folder = Path(os.environ["SPARK_BULL_TEST_COSTS"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}.json").write_text(json.dumps(_costs))


def _table(title: str, costs: Iterable[tuple[str, float]], most: int | None = None) -> list[str]:
    whole: Counter[str] = Counter()
    for name, s in costs:
        whole[name] += s  # type: ignore[assignment]
    rows = [f"| `{name}` | {s:,.1f} |" for name, s in whole.most_common(most)]
    return [f"| {title} | CPU, s |", "|---|---|", *rows, ""]


def main(folder: Path) -> None:
    """Puts the tables in the place of what is below their heading, the last one of the page."""
    found = [json.loads(one.read_text()) for one in folder.glob("*.json")]
    part, process, fixtures, tests = ([cost for one in found for cost in one[name].items()] for name in _costs)
    files = [(name.partition("::")[0], s) for name, s in tests]
    whole = f"{len({name for name, _ in tests}):,} tests took {sum(s for _, s in tests) / 60:,.1f} CPU minutes."
    lines = [f"{whole} `make costs` wrote these tables.", "", *_table("part", part), *_table("process", process)]
    lines += _table("folder", (("/".join(name.split("/")[:2]), s) for name, s in files))
    lines += _table("dearest fixture, without what it uses", fixtures, LISTED) + _table("dearest file", files, LISTED)
    lines += _table("dearest test", tests, LISTED_TESTS)
    above = README.read_text("utf-8").partition(HEADING)[0]
    README.write_text("\n".join([f"{above}{HEADING}", "", *lines]), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
