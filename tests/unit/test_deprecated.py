"""Old names of the API work until 2.0, warn once, and are in the changelog."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructType

import spark_bull
from spark_bull import deprecated
from spark_bull.cli.main import parser
from spark_bull.deprecated import ARGUMENTS, KEYS, NAMES, WORDS, with_new_keys, with_new_words, with_old_arguments
from spark_bull.errors import OptionError
from spark_bull.options.parse import parse_arguments, parse_options, spelled
from spark_bull.options.table import QUEUE, TABLE, WORK, WRITE, Option
from spark_bull.spark.dispatch.rows import plan_rows

CHANGELOG = (Path(__file__).parents[2] / "CHANGELOG.md").read_text("utf-8")
RENAMED = [(owner, old, new) for owner, names in NAMES.items() for old, new in names.items()]
ARGUMENTS_RENAMED = [(name, old, new) for name, names in ARGUMENTS.items() for old, new in names.items()]
KEYS_RENAMED = [(argument, old, new) for argument, names in KEYS.items() for old, new in names.items()]
OPTIONS_RENAMED = [(option, scope) for option in TABLE if option.old for scope in option.scopes]


@pytest.fixture(autouse=True)
def _nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deprecated, "_warned", set())


def warned(use: Callable[[], Any]) -> list[str]:
    """The texts of the warnings of two uses, whose line they name."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        use()
        use()
    assert {(one.category, one.filename) for one in found} <= {(DeprecationWarning, __file__)}
    return [str(one.message) for one in found]


def public_callables(name: str) -> Iterator[Callable[..., Any]]:
    """The public functions, methods and constructors of a name."""
    for public in spark_bull.__all__:
        found = getattr(spark_bull, public)
        if public == name:
            yield found.__init__ if isinstance(found, type) else found
        elif isinstance(found, type) and hasattr(found, name):
            yield getattr(found, name)


@pytest.mark.parametrize(("owner", "old", "new"), RENAMED)
def test_an_old_name_works_and_warns_once(owner: str, old: str, new: str) -> None:
    kind = getattr(spark_bull, owner, spark_bull)
    holder = kind
    if isinstance(kind, type):
        holder = kind(5) if issubclass(kind, Exception) else object.__new__(kind)
    texts = warned(lambda: getattr(holder, old))
    assert texts == [f"`{owner}.{old}` is called `{owner}.{new}` now: the old name works until 2.0"]
    assert getattr(holder, old) == getattr(holder, new)
    assert old not in dir(holder)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = holder.nothing


@pytest.mark.parametrize(("name", "old", "new"), ARGUMENTS_RENAMED)
def test_functions_take_the_old_name_of_an_argument(name: str, old: str, new: str) -> None:
    functions = [one for one in public_callables(name) if new in inspect.signature(one).parameters]
    assert functions
    for function in functions:
        assert hasattr(function, "__wrapped__"), f"{function.__qualname__}: decorate it with with_old_arguments"
        assert old not in inspect.signature(function).parameters


def test_an_old_argument_has_its_effect_and_warns_once() -> None:
    @with_old_arguments
    def stop(timeout_s: int, *, force: bool = False) -> tuple[int, bool]:
        return timeout_s, force

    function: Any = stop
    found = []
    texts = warned(lambda: found.append(function(grace_s=1, force=True)))
    assert found == [(1, True)] * 2
    assert texts == ["`stop(grace_s)` is called `stop(timeout_s)` now: the old name works until 2.0"]
    assert warned(lambda: function(2)) == []
    with pytest.raises(TypeError, match="got `timeout_s` twice: `grace_s` is its old name"):
        function(timeout_s=2, grace_s=1)


@pytest.mark.parametrize(("argument", "old", "new"), KEYS_RENAMED)
def test_an_old_key_of_a_mapping_is_the_new_one(argument: str, old: str, new: str) -> None:
    texts = warned(lambda: with_new_keys(argument, {old: 1, "other": 2}))
    assert texts == [f"`{argument}[{old}]` is called `{argument}[{new}]` now: the old name works until 2.0"]
    assert with_new_keys(argument, {old: 1, "other": 2}) == {new: 1, "other": 2}


@pytest.mark.parametrize(("option", "scope"), OPTIONS_RENAMED, ids=lambda one: getattr(one, "old", one))
def test_an_old_name_of_an_option_sets_it(option: Option, scope: str) -> None:
    old, new = spelled(option.old or "", scope), spelled(option.name, scope)
    texts = warned(lambda: parse_options({old.lower(): "5"}, scope))
    assert texts == [f"`{old}` is called `{new}` now: the old name works until 2.0"]
    assert parse_options({old: "5"}, scope)[option.name] == parse_options({new: "5"}, scope)[option.name]
    with pytest.raises(OptionError, match=f"expected `{new}` once, got it with its old name, too"):
        parse_options({old: "5", new: "5"}, scope)


def test_an_old_option_of_spark_is_logged_once(own_log: pytest.LogCaptureFixture) -> None:
    """Python shows no DeprecationWarning of a module of pyspark."""
    pyspark = {"__name__": "pyspark.sql.worker.write_into_data_source", "parse_options": parse_options, "WRITE": WRITE}
    use = "parse_options({'queue': 'q', 'uniqueBy': 'id', 'uniqueFor': '5'}, WRITE)"
    assert warned(lambda: eval(use, pyspark)) == []
    texts = [(record.name, record.levelname, record.getMessage()) for record in own_log.records]
    assert texts == [("spark_bull", "WARNING", "`uniqueFor` is called `uniqueForMs` now: the old name works until 2.0")]


def test_a_class_takes_an_old_name_of_an_option() -> None:
    parsed = []
    assert len(warned(lambda: parsed.append(parse_arguments({"name": "sparky"}, WORK)))) == 1
    assert parsed[0]["workerName"] == "sparky"


@pytest.mark.parametrize("options", [{}, {"jobColumns": "expireAfter"}, {"jobColumns": "expireAfterMs"}])
def test_a_column_has_its_old_name(options: dict[str, str]) -> None:
    payload = "a" if options else "data"
    schema = StructType().add(payload, StringType()).add("ExpireAfter", LongType())
    plans = []
    texts = warned(lambda: plans.append(plan_rows(schema, parse_options({"queue": "q", **options}, WRITE))))
    assert "expireAfterMs" in plans[0].columns
    assert texts == ["`expireAfter` is called `expireAfterMs` now: the old name works until 2.0"]


@pytest.mark.parametrize("command", WORDS)
def test_the_command_line_takes_old_words(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    ((old, new),) = WORDS[command].items()
    given = {
        "schedules": ["schedules", "schedules"],
        "work": ["work", "--queue", "q", "--processor", "a:b", f"{old}=5m"],
        "add": ["add", "q", "{}", f"{old}=5m"],
    }
    words = with_new_words(command, given[command])
    assert [word for word in words if word.startswith(new)]
    assert len(words) == len(given[command])
    assert parser().parse_args(words).command == words[0]
    error = capsys.readouterr().err
    assert error == f"spark-bull: `{old}` is called `{new}` now: the old name works until 2.0\n"
    assert with_new_words(words[0], words) == words


def test_the_changelog_has_a_table_of_all_old_names() -> None:
    names = [(f"{owner}.{old}", f"{owner}.{new}") for owner, old, new in RENAMED]
    names += [(f"{name}({old})", f"{name}({new})") for name, old, new in ARGUMENTS_RENAMED]
    names += [(f"{argument}[{old}]", f"{argument}[{new}]") for argument, old, new in KEYS_RENAMED]
    for option, scope in OPTIONS_RENAMED:
        owner = {WORK: "Worker(%s)", QUEUE: "BullQueue(%s)"}.get(scope, "%s")
        names.append((owner % spelled(option.old or "", scope), owner % spelled(option.name, scope)))
    for command, words in WORDS.items():
        prefix = "spark-bull " if command in words else f"spark-bull {command} "
        names += [(f"{prefix}{old}", f"{prefix}{new}") for old, new in words.items()]
    assert re.findall(r"^  \| `(.*)` \| `(.*)` \|$", CHANGELOG, re.MULTILINE) == names
