"""Every verb of a dialect is one typed function."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import getdoc, getmembers, isfunction, signature
from pathlib import Path

import spark_bull
from spark_bull.core.dialects.base import SHARED_VERBS
from spark_bull.core.dialects.registry import DIALECTS
from tests.support.lua_scripts import SCRIPTS

PACKAGE = Path(spark_bull.__file__).parent
#: The modules with verbs, one or two in a room.
HOMES = sorted(PACKAGE.glob("core/queue/*/*verbs.py"))
#: Functions of these modules, besides those that run a script.
HELPERS = {"chunks", "unpack_work"}
#: Scripts that the function of another verb may run instead of that.
VARIANTS = {"work_and_add", "commit_flows", "commit_graph", "commit_managed", "commit_schedules"}


def functions() -> dict[str, object]:
    found: dict[str, object] = {}
    for path in HOMES:
        module = import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
        own = {
            name: function
            for name, function in getmembers(module, isfunction)
            if function.__module__ == module.__name__ and not name.startswith("_")
        }
        assert not own.keys() & found.keys(), f"{path} has functions of the same name as another module"
        found |= own
    return found


def scripts_of(folder: str) -> set[str]:
    return {name.rpartition("/")[2] for name in SCRIPTS if name.rpartition("/")[0] == folder}


def test_each_script_of_each_dialect_has_a_function_of_its_name() -> None:
    in_dialects = {verb for dialect in DIALECTS.values() for verb in scripts_of(dialect.folder)}
    assert scripts_of("job") == SHARED_VERBS
    assert functions().keys() - HELPERS == (in_dialects | SHARED_VERBS) - VARIANTS


def test_each_verb_has_a_sentence_and_the_type_of_its_reply() -> None:
    for name, function in functions().items():
        assert getdoc(function), name
        assert signature(function).return_annotation not in (signature(function).empty, "Any"), name


def test_no_other_module_runs_a_script_of_a_dialect() -> None:
    callers = {
        path for path in PACKAGE.rglob("*.py") if re.search(r"handle\.run(_once)?\(", path.read_text(encoding="utf-8"))
    }
    assert callers == set(HOMES)
