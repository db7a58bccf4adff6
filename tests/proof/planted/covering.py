"""The tests that cover a planted error, by the recorded map of what each test runs."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path
from typing import Final

from spark_bull.core.store.scripts import load
from tests.proof.planted.errors import PACKAGE, Planted
from tests.support.lua_scripts import SCRIPTS

#: How many tests for an error are one test with other parameters, unless there are too few others.
MOST_ALIKE: Final = 2
#: With fewer tests that run what is altered, those that may run it in other processes are added.
FEW: Final = 8
#: Tests whose functions run in other processes, which are not recorded.
ELSEWHERE: Final = ("tests/spark/", "tests/faults/")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Test:
    """A test. s: the time that it took. ran: functions and scripts. is_rest: whether `make test` leaves it out."""

    id: str
    s: float
    is_rest: bool
    ran: frozenset[str]


def recorded(folder: Path) -> list[Test]:
    """The tests in the files of a map."""
    found: dict[str, Test] = {}
    for file in folder.glob("*.json"):
        part = json.loads(file.read_text())
        for name, (s, is_rest, ran) in part["tests"].items():
            found[name] = Test(name, s, is_rest, frozenset(map(part["names"].__getitem__, ran)))
    return list(found.values())


def tests_of(error: Planted, tests: Sequence[Test], most: int, most_s: float) -> list[Test]:
    """The tests that run what is altered, the most specific ones first; else those that may run it elsewhere.

    most: the number of tests, most_s: the time that they took when they were recorded.
    """
    is_lua = error.file.endswith(".lua")
    altered = {one for one in SCRIPTS if error.file in _files_of(one)} if is_lua else _functions_with(error)
    # A function that other processes run, and few tests here.
    nearby = [one for one in tests if one.ran & altered]
    others = [one for one in tests if one.id.startswith(ELSEWHERE)] if len(nearby) < FEW else []
    words, weights = _stems(f"{error.error} {error.file}"), _weights(tuple(one.id for one in tests))

    def order(one: Test) -> tuple[float, float]:
        likeness = sum(weights[word] for word in words & _stems(one.id))
        return -likeness, one.s * len(one.ran)

    return _at_most(sorted({*nearby, *others}, key=order), most, most_s)


def _at_most(tests: Sequence[Test], most: int, most_s: float) -> list[Test]:
    alike: Counter[str] = Counter()
    parts: tuple[list[Test], list[Test]] = [], []
    for one in tests:
        name = one.id.partition("[")[0]
        parts[alike[name] >= MOST_ALIKE].append(one)
        alike[name] += 1
    chosen = []
    for one in [*parts[0], *parts[1]][:most]:
        if one.s <= most_s:
            chosen.append(one)
            most_s -= one.s
    return chosen


@cache
def _weights(texts: tuple[str, ...]) -> dict[str, float]:
    """The weights of words: a word of few tests says more than one of many."""
    found = Counter(word for text in texts for word in _stems(text))
    return {word: log(len(texts) / count) for word, count in found.items()}


@cache
def _stems(text: str) -> frozenset[str]:
    """The beginnings of the words of a text."""
    return frozenset(word[:5] for word in re.findall("[a-z]{3,}", text.lower()))


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
