"""The functions of a worker as a program: their names are found without running the module."""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

from spark_bull.core.errors import OptionError
from spark_bull.run.worker.program import Functions, may_define


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        (Functions("nowhere:f"), "expected --processor to be importable, got 'nowhere:f': No module named 'nowhere'"),
        (Functions("json:f"), "expected --processor to be importable, got 'json:f': module 'json' has no attribute"),
        (Functions("f"), "expected --processor MODULE:NAME, got: 'f'"),
        (Functions("json:loads", "nowhere:f"), "expected --setup to be importable, got 'nowhere:f'"),
    ],
)
def test_a_function_that_cannot_be_imported_is_refused(functions: Functions, said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        functions.imported()


SOURCE = """
import os.path, json as j
from pyspark.sql.functions import udf
raise RuntimeError("it runs")
if True:
    one = two = lambda: 1
else:
    async def three(): ...
for four in []: pass
with open("x") as (five, *six): pass
try: seven: int = 1
except OSError as eight: pass
@udf("STRING")
def nine(local):
    global ten
    def inner(): ...
    ten = inner
class Eleven:
    def method(self): ...
(twelve := 12)
def thirteen[T](x): ...
"""
if sys.version_info < (3, 12):
    SOURCE = SOURCE.replace("[T]", "")
NAMES = ("os", "j", "udf", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "Eleven")


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleSpec:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "some_jobs.py").write_text(SOURCE)
    found = find_spec("some_jobs")
    assert found is not None
    return found


def test_names_that_a_module_binds_are_found_and_no_others(spec: ModuleSpec) -> None:
    bound = (*NAMES, "twelve", "thirteen")
    others = ("", "nin", "json", "local", "inner", "method", "print", "self", "x", "Eleven.method")
    assert [name for name in (*bound, *others) if may_define(spec, name)] == [*bound]


@pytest.mark.parametrize(
    "line",
    [
        "import sys; sys.modules[__name__].send = print",
        "def __getattr__(name): return print",
        "exec('send = print')",
    ],
)
def test_a_name_that_a_module_may_bind_when_it_runs_may_be_there(spec: ModuleSpec, line: str) -> None:
    assert spec.origin is not None
    Path(spec.origin).write_text(line)
    assert may_define(spec, "send")


def test_a_module_without_source_may_have_any_name_and_a_package_those_of_its_own_module() -> None:
    for module, name, found in (
        ("_json", "send", True),
        ("sys", "send", True),
        ("json", "loads", True),
        ("json", "send", False),
    ):
        spec = find_spec(module)
        assert spec is not None
        assert may_define(spec, name) == found
