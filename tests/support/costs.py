"""CPU time of tests: a plugin of pytest (`-p tests.support.costs`), which writes a file per process to the
folder of SPARK_BULL_TEST_COSTS. `python -m tests.support.costs FOLDER` writes tables of them to tests/README.md.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
#: Names of processes, and what the tables call them.
KINDS: Final = {"java": "JVM", "python": "Python", "node": "Node", "redis": "Redis", "valkey": "Redis"}
#: How many files and tests are listed.
LISTED: Final = 12
README: Final = Path(__file__).parents[1] / "README.md"
HEADING: Final = "## What the tests cost"

#: CPU time, s, by table and name.
_costs: Final[dict[str, Counter[str]]] = {name: Counter() for name in ("test", "part", "process")}


def cpu_by_kind(parent: int) -> Counter[str]:
    """CPU time so far of a process, its descendants, and their children that have ended, s, by kind of process."""
    found: Counter[str] = Counter()
    for pid in (parent, *_descendants(parent)):
        try:
            name, _, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        kind = next((kind for start, kind in KINDS.items() if name.startswith(start)), "others")
        found[kind] += sum(map(int, fields.split()[11:15])) / TICKS_PER_S  # type: ignore[assignment]
    return found


def _descendants(parent: int) -> Iterator[int]:
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield int(child)
            yield from _descendants(int(child))


def _measured(name: str, parts: Iterable[str]) -> Generator[None, Any, Any]:
    before = cpu_by_kind(os.getpid())
    try:
        return (yield)
    finally:
        used = {kind: max(0.0, s - before[kind]) for kind, s in cpu_by_kind(os.getpid()).items()}
        _costs["test"].update({name: sum(used.values())})
        _costs["process"].update(used)
        _costs["part"].update(dict.fromkeys(parts, sum(used.values())))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _measured(item.nodeid, _parts(item)))


def _parts(item: pytest.Item) -> Iterator[str]:
    yield "make test-rest" if item.get_closest_marker("rest") else "make test"
    if hasattr(getattr(item, "obj", None), "hypothesis"):
        yield "tests with Hypothesis"
    if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ()):
        yield (
            "tests with the shared Spark" if "spark" in getattr(item, "fixturenames", ()) else "tests that start Spark"
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    return (yield from _measured("(collection)", ["collection, once per process"]))


def pytest_sessionfinish() -> None:
    folder = Path(os.environ["SPARK_BULL_TEST_COSTS"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{os.getpid()}.json").write_text(json.dumps(_costs))


def _table(title: str, costs: Counter[str], most: int | None = None) -> list[str]:
    rows = [f"| `{name}` | {s:,.1f} |" for name, s in costs.most_common(most)]
    return [f"| {title} | CPU, s |", "|---|---|", *rows, ""]


def _summed(parts: Iterable[Mapping[str, float]]) -> Counter[str]:
    whole: Counter[str] = Counter()
    for part in parts:
        whole.update(part)
    return whole


def tables(folder: Path) -> list[str]:
    """The lines of the tables of all processes that have written to a folder."""
    found = [json.loads(one.read_text()) for one in folder.glob("*.json")]
    test, part, process = (_summed(one[name] for one in found) for name in _costs)
    files = _summed({name.partition("::")[0]: s} for name, s in test.items())
    folders = _summed({"/".join(name.split("/")[:2]): s} for name, s in files.items())
    lines = [
        f"{len(test):,} tests took {sum(test.values()) / 60:,.1f} CPU minutes. `make costs` wrote these tables.",
        "",
    ]
    lines += _table("part", part) + _table("process", process) + _table("folder", folders)
    return lines + _table("dearest file", files, LISTED) + _table("dearest test", test, LISTED)


def main(folder: Path) -> None:
    """Puts the tables in the place of what is below their heading, the last one of the page."""
    above = README.read_text("utf-8").partition(HEADING)[0]
    README.write_text("\n".join([f"{above}{HEADING}", "", *tables(folder)]), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
