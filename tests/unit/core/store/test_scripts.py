"""The loader of Lua scripts, and rules for all packaged scripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import ScriptError
from spark_bull.core.store.scripts import CHECK, assemble, load
from tests.support.lua_scripts import FILES, INCLUDES, SCRIPT_FILES, SCRIPTS, folders_of, includes_of, text_of

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


# the loader


def made_in(source: str) -> list[str]:
    """What the includes of a script define, in their order."""
    return re.findall(r"^-- lib\[\d+\]: (\w+)$", source, re.MULTILINE)


def test_a_script_of_a_dialect_with_types_of_keys_checks_them_first() -> None:
    files = {
        "a/b/x.lua": script("return key.wait", keys=""),
        "c/x.lua": script("return key.wait", keys=""),
        "lib/check_types.lua": "local function check_types()\nend",
        "a/lib/key_types.lua": "local KEY_TYPES = {\n  paused = 'list',\n  wait = 'list',\n}",
    }
    checking, other = (assemble(name, reader(files)).source for name in ("a/b/x", "c/x"))
    assert checking.count("LLEN") == 1, "only keys that the script has"
    assert checking.index("call('LLEN', key[1])") < checking.index("lib[1]({[key[1]] = 'list'}, why)")
    assert checking.index("LLEN") < checking.index("return key[1]")
    assert ("LLEN" in other, "check_types" in other) == (False, False)


def test_the_contract_is_read_from_the_head() -> None:
    made = assemble("a", reader({"a.lua": script(keys="wait stages...", args="chunk now")}))
    assert (made.name, made.keys, made.args, made.returns) == ("a", ("wait", "stages..."), ("chunk", "now"), "nothing")
    assert re.fullmatch("[0-9a-f]{40}", made.sha)
    none = assemble("a", reader({"a.lua": script(keys="", args="")}))
    assert (none.keys, none.args, none.sha == made.sha) == ((), (), False)


def test_keys_and_args_are_those_of_the_code_and_of_its_includes() -> None:
    files = {
        "a.lua": "-- @args ids...\n-- @keys touched... ledger?\n-- @returns nothing\n-- @include b\n"
        "-- key.commented\nreturn b(key.wait, key.ledger, key.touched, arg.limit, arg.ids)",
        "b.lua": "local function b()\n  return keys.active, monkey.wrench, key.wait, args.base, arg.limit\nend",
    }
    made = assemble("a", reader(files))
    assert (made.keys, made.args) == (("active", "wait", "ledger?", "touched..."), ("base", "limit", "ids..."))


def test_a_contract_that_does_not_say_what_is_returned_is_refused() -> None:
    text = "".join(line for line in script().splitlines(keepends=True) if "@returns" not in line)
    with pytest.raises(ScriptError, match="script `a` has an incomplete contract, missing: returns"):
        assemble("a", reader({"a.lua": text}))


def test_includes_are_inserted_once() -> None:
    files = {
        "a.lua": script("-- @include b\n-- @include x/lib: c e\nbody()"),
        "b.lua": "-- @include d\nlocal function b() end",
        "x/lib/c.lua": "-- @include d\n-- @include b\nlocal c = {}",
        "x/lib/e.lua": "local e = 2",
        "d.lua": "local D = 1",
    }
    source = assemble("a", reader(files)).source
    assert made_in(source) == ["b", "D", "c", "e"]
    assert source.endswith("body()")


def test_names_become_numbers_of_keys_of_arguments_and_of_includes() -> None:
    files = {
        "a.lua": script(
            "-- @include b\n-- b(key.wait)\nreturn b(key.wait, arg.now, 'b key wait', x.b, monkey.b, x.keys.wait)"
        ),
        "b.lua": "-- @include c\nlocal function b(keys, args)\n  return C[keys.active], args.now, b\nend",
        "c.lua": "local C = {now = 1}",
    }
    source = assemble("a", reader(files)).source
    assert source.endswith("-- b(key.wait)\nreturn lib[1](key[2], arg[1], 'b key wait', x.b, monkey.b, x.keys[2])")
    assert "lib[1] = function(keys, args)\n  return lib[2][keys[1]], args[1], lib[1]\nend" in source
    assert "lib[2] = {now = 1}" in source


def test_keys_that_a_script_looks_up_by_a_variable_can_be_found_by_their_names() -> None:
    for body, is_named in (("return key[arg.state]", True), ("return key.wait", False)):
        source = assemble("a", reader({"a.lua": script(body, keys="ended wait")})).source
        assert ("key.ended = key[1]\nkey.wait = key[2]\n" in source) == is_named


def test_an_include_that_is_missing_is_an_error_that_names_both_files() -> None:
    files = {"x/a.lua": script("-- @include lib: b"), "lib/b.lua": "-- @include {dialect}/lib: c\nlocal b = {}"}
    with pytest.raises(ScriptError, match=r"expected a Lua file `lib/c.lua` .* found none; `lib/b` includes it"):
        assemble("x/a", reader(files))


def test_an_include_cycle_is_an_error_that_shows_it() -> None:
    files = {
        "a.lua": script("-- @include b"),
        "b.lua": "-- @include c\nlocal b = 1",
        "c.lua": "-- @include b\nlocal c = 1",
    }
    with pytest.raises(ScriptError, match="without a cycle, got: a -> b -> c -> b"):
        assemble("a", reader(files))


def test_an_include_that_does_not_define_its_name_is_an_error() -> None:
    for code in ("local function shared()\nend", "local other = 1", "function b()\nend", ""):
        with pytest.raises(ScriptError, match=r"expected `lib/b.lua` to define `b`.*; `a` includes it"):
            assemble("a", reader({"a.lua": script("-- @include lib/b"), "lib/b.lua": code}))


def test_two_includes_of_one_name_are_an_error_that_names_both() -> None:
    files = {
        "a.lua": script("-- @include x/lib/b\n-- @include lib/c"),
        "x/lib/b.lua": "local function b() end",
        "lib/c.lua": "-- @include lib/b\nlocal function c() end",
        "lib/b.lua": "local b = {}",
    }
    with pytest.raises(ScriptError, match=r"one include of `a` to define `b`, got: x/lib/b.lua, lib/b.lua"):
        assemble("a", reader(files))


def test_keys_and_args_are_bound_in_the_order_of_the_contract() -> None:
    made = assemble("a", reader({"a.lua": script(keys="wait stages...", args="now ids...")}))
    assert made.bind_keys({"stages": ["x", "y"], "wait": "w", "more": "m"}) == ["w", "x", "y"]
    assert made.bind_args({"now": 5, "ids": [b"1", "2"]}) == [5, b"1", "2"]
    assert made.bind_args({"now": 5, "ids": []}) == [5]


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
    """The code of a script and its includes, as their files have it."""
    texts = []

    def read(path: str) -> str:
        file = path.removesuffix(".lua")
        if file not in FILES:
            raise ScriptError(f"expected a Lua file `{path}`, found none")
        texts.append(code_of(text_of(file)))
        return text_of(file)

    assemble(name, read)
    return "\n".join(texts)


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


def test_every_include_is_included_somewhere() -> None:
    folders = {folder for dialect in DIALECTS.values() for folder in folders_of(dialect.folder)}
    included = {include.format(dialect=folder) for file in FILES for include in includes_of(file) for folder in folders}
    types = {f"{dialect.folder}/lib/key_types" for dialect in DIALECTS.values()}
    assert set(INCLUDES) <= {include.removeprefix("/") for include in included} | types | {CHECK}


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
