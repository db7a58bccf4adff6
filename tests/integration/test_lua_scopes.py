"""Names in the Lua scripts, as Redis' compiler sees them: limits of its functions, and what each file includes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from redis import Redis

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.store.lua_files import lua_file
from spark_bull.core.store.scripts import assemble, key_types, load
from tests.support.lua_scripts import FILES, SCRIPT_FILES, SCRIPTS, includes_of, text_of

#: Instructions of Lua 5.1 that read and write a global; bits 0 to 5 are the opcode, bits 14 to 31 the constant.
GET_GLOBAL, SET_GLOBAL = 5, 7
#: Types of constants.
NIL, BOOLEAN, NUMBER, STRING = 0, 1, 3, 4


@dataclass(frozen=True)
class LuaFunction:
    """A compiled function. `line`: where it begins, 0 for the main chunk."""

    line: int
    #: The largest number of local variables that are active at the same instruction.
    locals: int
    upvalues: int
    globals: frozenset[str]
    inner: tuple[LuaFunction, ...]

    def all(self) -> Iterator[LuaFunction]:
        """This function, and all that are defined inside it."""
        yield self
        for function in self.inner:
            yield from function.all()

    def all_globals(self) -> set[str]:
        return {name for function in self.all() for name in function.globals}


def compiled(client: Redis, source: str) -> LuaFunction:
    """Compiles a Lua chunk in Redis. Raises AssertionError with the compiler's message for an error of syntax."""
    answer = cast(
        "list[bytes]",
        client.eval(
            "local f, why = loadstring(ARGV[1], 'chunk') return {f and string.dump(f) or '', why or ''}", 0, source
        ),
    )
    assert not answer[1], answer[1].decode()
    return _Reader(answer[0]).chunk()


class _Reader:
    """Reads the format of Lua 5.1 (`ldump.c`): little-endian, integers of 4 bytes, sizes and numbers of 8."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def chunk(self) -> LuaFunction:
        header = self._take(12)
        assert header == b"\x1bLuaQ\x00\x01\x04\x08\x04\x08\x00", header
        return self._function()

    def _take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def _int(self) -> int:
        return int(struct.unpack("<i", self._take(4))[0])

    def _text(self) -> str:
        size = struct.unpack("<Q", self._take(8))[0]
        return self._take(size)[:-1].decode("latin-1")

    def _constant(self) -> str | None:
        match self._take(1)[0]:
            case 4:
                return self._text()
            case 3:
                self._take(8)
            case 1:
                self._take(1)
        return None

    def _function(self) -> LuaFunction:
        self._text()
        line = self._int()
        self._int()
        upvalues = self._take(4)[0]
        code = struct.unpack(f"<{(size := self._int())}I", self._take(4 * size))
        constants = [self._constant() for _ in range(self._int())]
        inner = tuple(self._function() for _ in range(self._int()))
        self._take(4 * self._int())
        ranges = [(self._text(), self._int(), self._int()) for _ in range(self._int())]
        for _ in range(self._int()):
            self._text()
        used = frozenset(str(constants[word >> 14]) for word in code if word & 0x3F in (GET_GLOBAL, SET_GLOBAL))
        # A variable that is never used again has an empty range.
        active = max(sum(start <= at < max(end, start + 1) for _, start, end in ranges) for at in range(len(code)))
        return LuaFunction(line, active, upvalues, used, inner)


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
        assert key_types(dialect.folder, lambda _, text=text: text) == found


def test_each_file_uses_what_it_includes_and_nothing_else(client: Redis) -> None:
    for file in FILES:
        used = compiled(client, text_of(file)).all_globals() - LIBRARY - (CONTRACT if file in SCRIPT_FILES else set())
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
