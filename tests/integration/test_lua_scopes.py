"""Names in the Lua scripts, as Redis' compiler sees them: what each file includes, and what includes see."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO

from redis import Redis

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.store.lua_files import lua_file
from spark_bull.core.store.scripts import assemble, key_types, load
from tests.support.lua_scripts import FILES, SCRIPT_FILES, SCRIPTS, includes_of, text_of

#: Instructions of Lua 5.1 that read and write a global; bits 0 to 5 are the opcode, bits 14 to 31 the constant.
GET_GLOBAL, SET_GLOBAL = 5, 7
#: Of a chunk that Lua has compiled: little-endian, integers of 4 bytes, sizes and numbers of 8.
HEADER = b"\x1bLuaQ\x00\x01\x04\x08\x04\x08\x00"
COMPILE = "local f, why = loadstring(ARGV[1], 'chunk') return {f and string.dump(f) or '', why or ''}"


def globals_of(client: Redis, source: str) -> set[str]:
    """Compiles a Lua chunk in Redis. Raises AssertionError with the compiler's message for an error of syntax."""
    dumped, why = client.eval(COMPILE, 0, source)
    assert not why, why.decode()
    assert dumped.startswith(HEADER), dumped[: len(HEADER)]
    return {*_function(BytesIO(dumped.removeprefix(HEADER)))}


def _int(dumped: BytesIO) -> int:
    return int(struct.unpack("<i", dumped.read(4))[0])


def _text(dumped: BytesIO) -> str:
    (size,) = struct.unpack("<Q", dumped.read(8))
    return dumped.read(size)[:-1].decode("latin-1")


def _constant(dumped: BytesIO) -> str:
    """A text; of a number or a boolean, nothing."""
    kind = dumped.read(1)[0]
    if kind == 4:
        return _text(dumped)
    dumped.read({3: 8, 1: 1}.get(kind, 0))
    return ""


def _function(dumped: BytesIO) -> Iterator[str]:
    """The globals of a function, and of all that are defined inside it; `ldump.c` has the format."""
    _text(dumped)
    dumped.read(12)
    code = struct.unpack(f"<{(size := _int(dumped))}I", dumped.read(4 * size))
    constants = [_constant(dumped) for _ in range(_int(dumped))]
    for _ in range(_int(dumped)):
        yield from _function(dumped)
    dumped.read(4 * _int(dumped))
    for _local in range(_int(dumped)):
        _text(dumped)
        dumped.read(8)
    for _upvalue in range(_int(dumped)):
        _text(dumped)
    yield from (constants[word >> 14] for word in code if word & 0x3F in (GET_GLOBAL, SET_GLOBAL))


#: What Redis' Lua has.
LIBRARY = {
    *("redis", "cjson", "cmsgpack", "bit", "string", "table", "math", "KEYS", "ARGV"),
    *("assert", "error", "ipairs", "next", "pairs", "pcall", "select", "setmetatable", "tonumber", "tostring", "type"),
    "unpack",
}
#: The tables of a contract, which the loader binds in scripts. Includes get them as parameters.
CONTRACT = {"key", "arg"}


def test_no_script_uses_an_undefined_name(client: Redis) -> None:
    for name in SCRIPTS:
        assert globals_of(client, load(name).source) <= LIBRARY, name


def test_the_loader_reads_the_types_of_keys_as_lua_does(client: Redis) -> None:
    for dialect in DIALECTS.values():
        text = text_of(f"{dialect.folder}/lib/key_types")
        as_list = (
            "local found = {}\nfor name, kind in pairs(KEY_TYPES) do found[#found + 1] = {name, kind} end\nreturn found"
        )
        found = {name.decode(): kind.decode() for name, kind in client.eval(f"{text}\n{as_list}", 0)}
        assert key_types(dialect.folder, lambda _, text=text: text) == found


def test_each_file_uses_what_it_includes_and_nothing_else(client: Redis) -> None:
    for file in FILES:
        used = globals_of(client, text_of(file)) - LIBRARY - {"call"} - (CONTRACT if file in SCRIPT_FILES else set())
        assert used == includes_of(file).keys() - lua_file(text_of(file)).definitions.keys(), file


def test_includes_see_neither_helpers_nor_constants_of_each_other(client: Redis) -> None:
    files = {
        "a.lua": "-- @keys\n-- @args\n-- @returns names\n-- @include b c\n"
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
        "a.lua": "-- @returns how many were made, before and after two calls\n-- @include b(b)\n"
        "-- @include log(LOG)\nlocal before = #LOG\nreturn {before, b(2), b(3), #LOG}",
        "b.lua": "-- @include c(C) log(LOG)\nlocal made = rawset(LOG, #LOG + 1, 'b')\nlocal function helper(n)\n"
        "  return made and n * C\nend\nlocal function b(n)\n  return helper(n)\nend",
        "c.lua": "-- @include log(LOG)\nlocal C = rawset(LOG, #LOG + 1, 'c') and 7",
        "log.lua": "local LOG = {}",
    }
    assert client.eval(assemble("a", lambda path: files[path]).source, 0) == [0, 14, 21, 2]
