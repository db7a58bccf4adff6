"""The loader of Lua scripts, and rules for all packaged scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import ScriptError
from spark_bull.core.store.lua_files import lua_file
from spark_bull.core.store.scripts import CHECK, assemble, load
from tests.support.lua_scripts import FILES, INCLUDES, SCRIPT_FILES, SCRIPTS, includes_of, place_of, text_of

CONTRACT = "-- Says what it does.\n-- @args {args}\n-- @keys {keys}\n-- @returns nothing\n"


def reader(files: dict[str, str]) -> Callable[[str], str]:
    """Reads from a dict, as `load` reads from the package."""

    def read(path: str) -> str:
        if path not in files:
            raise ScriptError(f"expected a Lua file `{path}` in the package, found none")
        return files[path]

    return read


def script(body: str = "return 1", keys: str = "wait", args: str = "now") -> str:
    return CONTRACT.format(keys=keys, args=args) + body


def made_in(source: str) -> list[str]:
    """What the includes of a script define, in their order."""
    return re.findall(r"^(?:lib\[\d+\](?:, )?)+ = (.*)$", source, re.MULTILINE)


def test_a_contract_that_does_not_say_what_is_returned_is_refused() -> None:
    text = "".join(line for line in script().splitlines(keepends=True) if "@returns" not in line)
    with pytest.raises(ScriptError, match="script `a` has an incomplete contract, missing: returns"):
        assemble("a", reader({"a.lua": text}))


def test_a_script_gets_the_definitions_that_it_uses_and_what_they_use_in_the_order_of_their_file() -> None:
    files = {
        "a.lua": script("-- @include jobs(last first)\nreturn last(first)", keys=""),
        "jobs.lua": "-- @include b\nlocal LIMIT, MOST = 1, 2\nlocal function first()\n  return MOST\nend\n"
        "local function unused()\n  return b(key.wait)\nend\nlocal function last()\n  return LIMIT\nend",
    }
    made = assemble("a", reader(files))
    assert made.keys == ()
    assert made_in(made.source) == ["first, last"]
    parts = ["LIMIT, MOST = 1, 2", "function first", "function last"]
    assert [made.source.count(part) for part in parts] == [1, 1, 1]
    assert sorted(parts, key=made.source.index) == parts
    assert "unused" not in made.source


def test_an_include_that_is_missing_is_an_error_that_names_both_files() -> None:
    files = {"x/a.lua": script("-- @include lib: b\nb()"), "lib/b.lua": "-- @include {dialect}/lib: c\nlocal b = {c}"}
    with pytest.raises(ScriptError, match=r"expected `x/lib/c.lua` or `lib/c.lua` to define `c`, which `lib/b\(b\)`"):
        assemble("x/a", reader(files))


def test_an_include_cycle_is_an_error_that_shows_it() -> None:
    files = {
        "a.lua": script("-- @include b\nb()"),
        "b.lua": "-- @include c\nlocal function b()\n  c()\nend",
        "c.lua": "-- @include b\nlocal function c()\n  b()\nend",
    }
    with pytest.raises(ScriptError, match=re.escape("without a cycle, got: a -> b(b) -> c(c) -> b(b)")):
        assemble("a", reader(files))


def test_an_include_that_does_not_define_its_name_is_an_error() -> None:
    for code in ("local function shared()\nend", "local other = 1", "function b()\nend", ""):
        with pytest.raises(ScriptError, match=r"expected `lib/b.lua` to define `b`, which `a` includes"):
            assemble("a", reader({"a.lua": script("-- @include lib: b\nb()"), "lib/b.lua": code}))


def test_two_definitions_of_one_name_in_a_file_are_an_error() -> None:
    with pytest.raises(ScriptError, match="one definition of `b` in a file, got two"):
        lua_file("local A, b = 1, 2\nlocal function b()\nend").definitions.keys()


def test_a_key_or_argument_that_is_missing_or_empty_is_an_error() -> None:
    made = assemble("a", reader({"a.lua": script(keys="wait ledger?")}))
    with pytest.raises(ScriptError, match="`now`"):
        made.bind_args({})
    for keys in ({}, {"wait": "", "ledger": "l"}, {"wait": "w", "ledger": ""}, {"wait": None}):
        with pytest.raises(ScriptError, match="key"):
            made.bind_keys(keys)


def test_an_absent_optional_key_is_sent_as_the_first_key() -> None:
    """The first key is allowed by the ACL, and in the same slot of a cluster."""
    made = assemble("a", reader({"a.lua": script(keys="wait ledger? stages...")}))
    assert made.bind_keys({"wait": "w", "ledger": "l", "stages": []}) == ["w", "l"]
    assert made.bind_keys({"wait": "w", "ledger": None, "stages": ["x"]}) == ["w", "w", "x"]
    assert "if key[2] == key[1] then key[2] = nil end" in made.source


# every packaged script


def code_of(text: str) -> str:
    return re.sub(r"--.*", "", text)


def whole_code(name: str) -> str:
    """The code of a script and of what it includes, as the files have it."""
    lines = []
    for part in load(name).parts:
        if part.file:
            text = code_of(text_of(part.file)).splitlines()
            lines += [text[number - 1] for number in part.lines]
    return "\n".join(lines)


def test_every_script_can_be_loaded_and_starts_with_a_sentence() -> None:
    for name in SCRIPTS:
        made = load(name)
        assert len(set(made.keys)) == len(made.keys), name
        assert len(set(made.args)) == len(made.args), name
        assert made.returns, name
        assert all("..." not in key for key in (*made.keys[:-1], *made.args[:-1])), name
        assert not made.keys or not made.keys[0].endswith("?"), name
    for name in SCRIPT_FILES:
        head = text_of(name).partition("-- @")[0]
        assert re.match(r"-- [A-Z].*?[.:]\s", head, re.DOTALL), f"{name}: {head}"
        assert all(line.startswith("--") for line in head.splitlines()), f"{name}: {head}"


def used_and_declared(name: str, table: str) -> tuple[set[str], set[str]]:
    """The keys or arguments in the code, and those in KEYS or ARGV. table: `key` or `arg`."""
    code, made = whole_code(name), load(name)
    used = set(re.findall(rf"\b{table}s?\.(\w+)", code))
    names = made.keys if table == "key" else made.args
    declared = {found.removesuffix("...").removesuffix("?") for found in names}
    # Keys of other queues are declared for the cluster: the code makes them from its arguments.
    used |= {found.removesuffix("...") for found in names if found.endswith("...")}
    if table == "key" and re.search(r"\bkey\[\w+\]", code):
        # Keys that are looked up by a variable are listed in tables.
        used |= declared & set(re.findall(r"'(\w+)'", "".join(re.findall(r"\{[^{}]*\}", code))))
    return used, declared


def test_no_script_declares_a_key_or_argument_that_it_does_not_use() -> None:
    for name, table in product(SCRIPTS, ("key", "arg")):
        used, declared = used_and_declared(name, table)
        assert used == declared, f"{name}: used only: {used - declared}; declared only: {declared - used}"


def test_no_file_uses_keys_by_position_or_an_argument_by_a_variable() -> None:
    texts = {file: code_of(text_of(file)) for file in FILES}
    using = [file for file, code in texts.items() if re.search(r"\b(KEYS|ARGV)\b|\barg\[", code)]
    assert not using, "read `key.name` and `arg.name`"


def test_every_definition_is_used() -> None:
    """By other files, or by its own."""
    folders = {dialect.folder for dialect in DIALECTS.values()}
    used = {
        (place_of(folder, name, of), name)
        for file in FILES
        for name, of in includes_of(file).items()
        for folder in folders
    }
    for file in INCLUDES:
        definitions = lua_file(text_of(file)).definitions
        used |= {
            (file, name) for code in definitions.values() for name in code().names if definitions.get(name) != code
        }
    types = {(f"{dialect.folder}/lib/key_types", "KEY_TYPES") for dialect in DIALECTS.values()}
    defined = {(file, name) for file in INCLUDES for name in lua_file(text_of(file)).definitions}
    assert defined - used == types | {(CHECK, "check_types")}


#: Equal lines in a row that are a repetition.
RUN = 6


def lines_of(file: str) -> list[str]:
    """The lines of a file that do something: no comments, and none that only close a block."""
    lines = (line.strip() for line in code_of(text_of(file)).splitlines())
    return [line for line in lines if line and not re.fullmatch(r"else|(?:end|[)}\]])+[;,]?", line)]


def test_no_run_of_lines_stands_in_two_files() -> None:
    places: dict[tuple[str, ...], list[str]] = {}
    for file in FILES:
        lines = lines_of(file)
        for start in range(len(lines) - RUN + 1):
            places.setdefault(tuple(lines[start : start + RUN]), []).append(file)
    repeated = {run: files for run, files in places.items() if len(files) > 1}
    assert not repeated, "\n".join(f"{files}: {run[0]} …" for run, files in repeated.items())


def test_scripts_without_a_key_are_known() -> None:
    """In a cluster, the first key of a script decides on its node; these run at the home of their connection."""
    assert {name for name in SCRIPTS if not load(name).keys} == {"job/claimed", "job/start", "read/queues"}
