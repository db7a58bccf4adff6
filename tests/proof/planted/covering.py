"""The tests that may find a planted error: by the recorded map of what each test runs, else by their folders."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from spark_bull.core.store.scripts import load
from tests.proof.planted.errors import PACKAGE, Planted
from tests.support.lua_scripts import SCRIPTS

#: With fewer tests that run what is altered, those that may run it in other processes are added.
FEW: Final = 8
#: Tests whose functions run in other processes, which are not recorded.
ELSEWHERE: Final = ("tests/spark/", "tests/faults/")
#: The folders of the tests of a part, by the start of the altered file.
FOLDERS: Final = {
    "core/lua/": ("conformance", "faults", "interop"),
    "core/": ("unit/core", "conformance", "integration"),
    "run/": ("unit/run", "conformance", "integration", "faults"),
    "spark/": ("unit/spark", "spark"),
    "ops/": ("unit/ops", "integration", "web"),
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Test:
    """A test. s: the time that it took. ran: functions and scripts."""

    id: str
    s: float
    ran: frozenset[str]


def recorded(folder: Path) -> list[Test]:
    """The tests in the files of a map."""
    found: dict[str, Test] = {}
    for file in folder.glob("*.json"):
        part = json.loads(file.read_text())
        for name, (s, ran) in part["tests"].items():
            found[name] = Test(name, s, frozenset(map(part["names"].__getitem__, ran)))
    return list(found.values())


def tests_of(error: Planted, tests: Sequence[Test], most_s: float) -> list[str]:
    """The tests that run what is altered, the quickest ones first; else the folders with the tests of its part.

    most_s: the time that they took when they were recorded.
    """
    is_lua = error.file.endswith(".lua")
    altered = {one for one in SCRIPTS if error.file in _files_of(one)} if is_lua else _functions_with(error)
    nearby = [one for one in tests if one.ran & altered]
    # A function that other processes run, and few tests here.
    others = [one for one in tests if one.id.startswith(ELSEWHERE)] if len(nearby) < FEW else []
    chosen = []
    for one in sorted({*nearby, *others}, key=lambda one: one.s):
        most_s -= one.s
        if most_s >= 0:
            chosen.append(one.id)
    return chosen or _folders_of(error)


def _folders_of(error: Planted) -> list[str]:
    folders = next(folders for start, folders in FOLDERS.items() if error.file.startswith(start))
    return [f"tests/{one}" for one in folders]


@cache
def _files_of(script: str) -> frozenset[str]:
    """The files of a script: its own, and its includes."""
    return frozenset(f"core/lua/{part.file}.lua" for part in load(script).parts if part.file)


def _functions_with(error: Planted) -> set[str]:
    """The innermost function with the text; of a constant, the functions that name it, and all of its file."""
    whole = (PACKAGE / error.file).read_text("utf-8")
    line = whole[: whole.index(error.text)].count("\n") + 1
    tree = ast.parse(whole)
    around = [node for node in ast.walk(tree) if isinstance(node, _Function) and _has(node, line)]
    if around:
        return {f"{error.file}:{around[-1].name}"}
    names = {name for node in tree.body if _has(node, line) for name in _assigned(node)}
    own = {f"{error.file}:{node.name}" for node in ast.walk(tree) if isinstance(node, _Function)}
    return own | {user for user, used in _names_in_functions().items() if used & names}


def _has(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _assigned(node: ast.stmt) -> Iterator[str]:
    for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
        if isinstance(target, ast.Name):
            yield target.id


@cache
def _names_in_functions() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, _Function):
                names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
                found.setdefault(f"{path.relative_to(PACKAGE).as_posix()}:{node.name}", set()).update(names)
    return found
