"""Lua files as the loader of scripts reads them: their contract, and what they include and define."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import NamedTuple

from spark_bull.core.errors import ScriptError

Read = Callable[[str], str]

_TAG = re.compile(r"^-- @(keys|args|returns|include)\b[ \t]*(.*)$", re.MULTILINE)
#: A line up to its comment.
_LINE = re.compile(r"""^((?:'[^'\n]*'|"[^"\n]*"|-(?!-)|[^-'"\n])*).*$""", re.MULTILINE)
#: A text; a key or an argument; or another name that is not one of a field.
_TOKEN = re.compile(r"""('[^'\n]*'|"[^"\n]*"|\b(?:key|arg)s?\.\w+|(?<![.:\w])[A-Za-z_]\w*)""")
#: A key that is looked up by a variable.
_LOOKUP = re.compile(r"\bkey\[")
#: A key, or an argument.
_FIELD = {table: re.compile(rf"^{table}s?\.(\w+)$", re.MULTILINE) for table in ("key", "arg")}
#: A file of a tag, with the names that it defines if these are others than its own.
_FILE = re.compile(r"(\w+)(?:\(([^)]*)\))?")
#: Where a definition starts, and its names: of one function, or of some values.
_START = re.compile(r"^(?=local )", re.MULTILINE)
_DEFINITION = re.compile(r"local (?:function )?(\w+(?:, \w+)*)")


class Code(NamedTuple):
    """Code without comments, blank lines and indentation.

    pieces: its text; every second one is a name or a quoted text. names: these in their order, with `key.wait` and
    `arg.now` as one. keys, args: what follows the dot. looks_up: whether it looks up keys by a variable. lines: the
    numbers that its lines have in the file. defines: the names that it defines for its file and others.
    """

    pieces: Sequence[str]
    names: Mapping[str, None]
    keys: frozenset[str]
    args: frozenset[str]
    looks_up: bool
    lines: Sequence[int]
    defines: Sequence[str] = ()

    def renamed(self, names: Mapping[str, str]) -> str:
        """The text with other names."""
        return "".join(map(names.get, self.pieces, self.pieces))


@dataclass(frozen=True)
class LuaFile:
    """One file. contract: the tags `keys`, `args` and `returns` with their texts. includes: what other files define, by
    the names that the code uses, with the files.
    """

    text: str
    contract: Mapping[str, str]
    includes: Mapping[str, str]

    @cached_property
    def body(self) -> Code:
        """The whole code."""
        return _code(self.text, 1)

    @cached_property
    def definitions(self) -> Mapping[str, Callable[[], Code]]:
        """What returns the code of each definition, by its names. Raises ScriptError if two have the same name."""
        found: dict[str, Callable[[], Code]] = {}
        first = 1
        for part in _START.split(self.text):
            if start := _DEFINITION.match(part):
                names = start[1].split(", ")
                own = dict.fromkeys(names, cache(partial(_code, part, first, names)))
                if both := own.keys() & found:
                    raise ScriptError(f"expected one definition of `{both.pop()}` in a file, got two")
                found |= own
            first += part.count("\n")
        return found


@cache
def lua_file(text: str) -> LuaFile:
    tags = _TAG.findall(text)
    includes: dict[str, str] = {}
    for tag, value in tags:
        if tag == "include":
            includes |= _included(value)
    return LuaFile(text, {tag: value for tag, value in tags if tag != "include"}, includes)


def _included(value: str) -> Iterator[tuple[str, str]]:
    """The names of a tag, such as `lib: once jobs(is_job job_row)`, with their files."""
    folder, _, files = value.rpartition(": ")
    for file, names in _FILE.findall(files):
        for name in names.split() or [file]:
            yield name, f"{folder}/{file}" if folder else file


def _code(text: str, first: int, defines: Sequence[str] = ()) -> Code:
    """The code of a text that begins at the line `first` of its file."""
    lines = {number: line for number, line in enumerate(map(str.strip, _LINE.findall(text)), first) if line}
    code = "\n".join(lines.values())
    pieces = _TOKEN.split(code)
    names = dict.fromkeys(pieces[1::2])
    keys, args = (frozenset(_FIELD[table].findall("\n".join(names))) for table in ("key", "arg"))
    return Code(pieces, names, keys, args, bool(_LOOKUP.search(code)), [*lines], defines)
