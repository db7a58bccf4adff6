"""CPU time of tests and fixtures: a plugin of pytest (`-p tests.support.costs`), which writes a file per process to the
folder of SPARK_BULL_TEST_COSTS. `python -m tests.support.costs FOLDER` prints tables of them.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
#: Names of processes, and what the tables call them.
KINDS: Final = {"java": "JVM", "python": "Python", "node": "Node", "redis": "Redis", "valkey": "Redis"}
#: Tests and files that are listed.
MOST: Final = 50

_by_test: Final = Counter[str]()
_by_kind: Final = Counter[str]()
_by_fixture: Final = Counter[str]()


def cpu_by_kind(parent: int) -> Counter[str]:
    """CPU time so far of a process, its descendants, and their children that have ended, s, by kind of process."""
    found: Counter[str] = Counter()
    for pid in (parent, *_descendants(parent)):
        try:
            name, _, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        kind = next((kind for start, kind in KINDS.items() if name.startswith(start)), "others")
        found[kind] += sum(map(int, fields.split()[11:15])) / TICKS_PER_S
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


def _measured(name: str, costs: Counter[str]) -> Generator[None, object, object]:
    before = cpu_by_kind(os.getpid())
    try:
        return (yield)
    finally:
        used = {kind: max(0.0, s - before[kind]) for kind, s in cpu_by_kind(os.getpid()).items()}
        costs[name] += sum(used.values())  # type: ignore[assignment]
        if costs is _by_test:
            _by_kind.update(used)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _measured(item.nodeid, _by_test))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    if fixturedef.scope == "function":
        return (yield)
    return (yield from _measured(fixturedef.argname, _by_fixture))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    return (yield from _measured("(collection)", _by_test))


def pytest_sessionfinish() -> None:
    folder = Path(os.environ["SPARK_BULL_TEST_COSTS"])
    folder.mkdir(parents=True, exist_ok=True)
    found = {"tests": _by_test, "kinds": _by_kind, "fixtures": _by_fixture}
    (folder / f"{os.getpid()}.json").write_text(json.dumps(found))


def _table(title: str, costs: Counter[str], most: int = MOST) -> list[str]:
    rows = [f"| `{name}` | {s:,.1f} |" for name, s in costs.most_common(most)]
    return [f"| {title} | CPU, s |", "|---|---|", *rows, ""]


def _summed(parts: Iterable[Mapping[str, float]]) -> Counter[str]:
    whole: Counter[str] = Counter()
    for part in parts:
        whole.update(part)  # type: ignore[arg-type]
    return whole


def main(folder: Path) -> None:
    found = [json.loads(one.read_text()) for one in folder.glob("*.json")]
    tests, kinds, fixtures = (_summed(one[name] for one in found) for name in ("tests", "kinds", "fixtures"))
    files = _summed({name.partition("::")[0]: s} for name, s in tests.items())
    folders = _summed({"/".join(name.split("/")[:2]): s} for name, s in files.items())
    lines = [f"{len(tests):,} tests, {sum(tests.values()) / 60:,.1f} CPU minutes.", ""]
    lines += _table("processes", kinds) + _table("folder", folders) + _table("file", files)
    lines += _table("test", tests) + _table("fixture of a module or of all", fixtures, 20)
    print("\n".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
