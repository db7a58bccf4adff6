"""The Lua files of the package, the scripts that can be loaded, and what Redis' own compiler makes of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from redis import Redis

import spark_bull
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.store.lua_files import lua_file

LUA = Path(spark_bull.__file__).parent / "core" / "lua"
#: All files, by their paths without suffix.
FILES = sorted(path.relative_to(LUA).with_suffix("").as_posix() for path in LUA.rglob("*.lua"))
INCLUDES = [file for file in FILES if file.split("/")[-2] == "lib"]
SCRIPT_FILES = [file for file in FILES if file not in INCLUDES]


def text_of(file: str) -> str:
    return (LUA / f"{file}.lua").read_text()


def includes_of(file: str) -> list[str]:
    return [*lua_file(text_of(file)).includes]


def folders_of(dialect: str) -> list[str]:
    """The folders in which includes of a dialect are looked for, by its own folder."""
    return [dialect, *folders_of(dialect.rpartition("/")[0])] if dialect else [""]


def _has(dialect: str, include: str) -> bool:
    return any(include.format(dialect=folder).removeprefix("/") in INCLUDES for folder in folders_of(dialect))


def _names_of(file: str) -> list[str]:
    """The scripts of a file. One in `verbs/` is a script of each dialect that has its includes but no own file."""
    folder, _, verb = file.rpartition("/")
    if folder != "verbs":
        return [file]
    names = {dialect.folder: f"{dialect.folder}/{verb}" for dialect in DIALECTS.values()}
    includes = includes_of(file)
    return [
        name
        for dialect, name in names.items()
        if name not in FILES and all(_has(dialect, include) for include in includes)
    ]


SCRIPTS = sorted(name for file in SCRIPT_FILES for name in _names_of(file))


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
