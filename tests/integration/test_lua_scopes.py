"""Names in the Lua scripts, as Redis' compiler sees them: limits of its functions, and what each file includes."""

from __future__ import annotations

from redis import Redis

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.store.scripts import assemble, key_types, load
from tests.support.lua_scripts import FILES, SCRIPT_FILES, SCRIPTS, compiled, includes_of, text_of

#: Lua allows 200 local variables and 60 upvalues per function.
MOST_LOCALS = 150
MOST_UPVALUES = 50
#: What Redis' Lua has.
LIBRARY = {
    *("redis", "cjson", "cmsgpack", "bit", "string", "table", "math", "KEYS", "ARGV"),
    *("assert", "error", "ipairs", "next", "pairs", "pcall", "select", "setmetatable", "tonumber", "tostring", "type"),
    "unpack",
}
#: The tables of a contract, which the loader binds in scripts. Includes get them as parameters.
CONTRACT = {"key", "arg"}


def test_no_function_of_a_script_comes_near_to_the_limits_of_lua(client: Redis) -> None:
    for name in SCRIPTS:
        for function in compiled(client, load(name).source).all():
            assert function.locals <= MOST_LOCALS, f"{name}, function at line {function.line}"
            assert function.upvalues <= MOST_UPVALUES, f"{name}, function at line {function.line}"


def test_no_script_uses_an_undefined_name(client: Redis) -> None:
    for name in SCRIPTS:
        assert compiled(client, load(name).source).all_globals() <= LIBRARY, name


def test_the_loader_reads_the_types_of_keys_as_lua_does(client: Redis) -> None:
    for dialect in DIALECTS.values():
        text = text_of(f"{dialect.folder}/lib/key_types")
        as_list = (
            "local found = {}\nfor name, kind in pairs(KEY_TYPES) do found[#found + 1] = {name, kind} end\nreturn found"
        )
        found = {name.decode(): kind.decode() for name, kind in client.eval(f"{text}\n{as_list}", 0)}
        assert key_types(dialect.folder, lambda _, text=text: text) == found  # type: ignore[misc]


def test_each_file_uses_what_it_includes_and_nothing_else(client: Redis) -> None:
    for file in FILES:
        used = compiled(client, text_of(file)).all_globals() - LIBRARY - (CONTRACT if file in SCRIPT_FILES else set())
        assert {name.lower() for name in used} == {include.rpartition("/")[2] for include in includes_of(file)}, file


def test_includes_see_neither_helpers_nor_constants_of_each_other(client: Redis) -> None:
    files = {
        "a.lua": "-- @keys\n-- @args\n-- @returns names\n-- @include b\n-- @include c\n"
        "return {b(), c.get(), tostring(helper), tostring(LIMIT)}",
        "b.lua": "local LIMIT = 1\nlocal function helper()\n  return LIMIT\nend\nlocal b = helper",
        "c.lua": "local LIMIT = 2\nlocal function helper()\n  return LIMIT\nend\nlocal c = {get = helper}",
    }
    source = assemble("a", files.__getitem__).source
    # Redis forbids undefined globals.
    assert client.eval("local helper, LIMIT\n" + source, 0) == [1, 2, b"nil", b"nil"]


def test_a_script_finds_its_keys_and_arguments(client: Redis) -> None:
    files = {
        "a.lua": "-- @keys ledger? control? ended stages...\n-- @args ids...\n-- @returns some of each\n-- @include b\n"
        "return {b(key, arg), key.wait, key[arg.state], key.ledger or 'none', key.control, #key.stages, key.stages[2],"
        " #arg.ids, arg.ids[1]}",
        "b.lua": "local function b(keys, args)\n  return keys.active .. args.now\nend",
    }
    made = assemble("a", lambda path: files[path])
    keys = {"active": "A", "wait": "W", "ended": "E", "ledger": None, "control": "C", "stages": ["S", "T"]}
    bound, args = made.bind_keys(keys), made.bind_args({"now": 5, "state": "ended", "ids": ["x", "y", "z"]})
    found = client.eval(made.source, len(bound), *bound, *args)
    assert found == [b"A5", b"W", b"E", b"none", b"C", 2, b"T", 3, b"x"]


def test_an_include_is_made_once_when_it_is_first_used(client: Redis) -> None:
    files = {
        "a.lua": "-- @returns how many were made, before and after two calls\n-- @include b log\n"
        "local before = #LOG\nreturn {before, b(2), b(3), #LOG}",
        "b.lua": "-- @include c log\nLOG[#LOG + 1] = 'b'\nlocal function helper(n)\n  return n * C\nend\n"
        "local function b(n)\n  return helper(n)\nend",
        "c.lua": "-- @include log\nLOG[#LOG + 1] = 'c'\nlocal C = 7",
        "log.lua": "local LOG = {}",
    }
    assert client.eval(assemble("a", lambda path: files[path]).source, 0) == [0, 14, 21, 2]
