"""Every script of a dialect is run in one room of queues."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import spark_bull
from spark_bull.core.dialects.base import SHARED_VERBS
from spark_bull.core.dialects.registry import DIALECTS
from tests.support.lua_scripts import SCRIPTS

PACKAGE = Path(spark_bull.__file__).parent


def scripts_of(folder: str) -> set[str]:
    return {name.rpartition("/")[2] for name in SCRIPTS if name.rpartition("/")[0] == folder}


#: Functions that run a script, and the index of the argument that names it.
RUNNERS = {"run": 0, "run_once": 0, "_swept": 1, "WriteKind": 0}


def names_in(path: Path) -> set[str]:
    """The scripts that a module runs, by their names in the calls of RUNNERS."""
    names = set()
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call):
            continue
        index = RUNNERS.get(ast.unparse(call.func).rpartition(".")[2])
        if index is not None and len(call.args) > index:
            argument = call.args[index]
            choices = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
            names |= {one.value for one in choices if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return names


def test_each_script_of_each_dialect_is_run_in_a_room_of_queues() -> None:
    in_dialects = {verb for dialect in DIALECTS.values() for verb in scripts_of(dialect.folder)}
    assert scripts_of("job") == SHARED_VERBS
    homes = [path for path in PACKAGE.rglob("*.py") if re.search(r"handle\.run(_once)?\(", path.read_text("utf-8"))]
    assert {path.relative_to(PACKAGE).parts[:2] for path in homes} == {("core", "queue")}
    rooms = [*(PACKAGE / "core" / "queue").rglob("*.py")]
    assert (in_dialects | SHARED_VERBS) - set[str]().union(*map(names_in, rooms)) == set()
