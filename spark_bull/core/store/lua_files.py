"""Lua files as the loader of scripts reads them: their contract, and what they include and define.

Redis makes what a script includes when it is first used: the code for that is here, too.
"""

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


class Part(NamedTuple):
    """A part of the text that Redis gets. file: the path of its file without suffix, lines: the numbers that its lines
    have there; without both if the loader has made it.
    """

    text: str
    file: str = ""
    lines: Sequence[int] = ()


#: A definition: the path of its file without suffix, and its first name.
_Key = tuple[str, str]


class Includes:
    """The definitions that a script includes, and all that they use. folder: `{dialect}`."""

    def __init__(self, script: str, folder: str, read: Read) -> None:
        self._script, self._read = script, read
        self._folders = [folder]
        while self._folders[-1]:
            self._folders.append(self._folders[-1].rpartition("/")[0])
        self._files: dict[str, LuaFile] = {}
        #: The path of the file that has what an include names.
        self._places: dict[tuple[str, str], str] = {}
        self._needed: dict[_Key, Code] = {}
        #: The definitions that are made with one: of the same file, where one uses another.
        self._together: dict[_Key, list[_Key]] = {}
        #: The names that other files use.
        self._included: dict[_Key, dict[str, None]] = {}

    def add_used_by(self, file: LuaFile, code: Code, *path: str) -> None:
        """Adds what this code of a file includes, and all that this uses. path: what has led to the file."""
        for name, of in _included_by(file, code):
            self.add(of, name, *path)

    def add(self, file: str, name: str, *path: str) -> None:
        """Adds a definition of an included file, and all that it uses."""
        key = self._need(self._place_of(file, name, path), name, path)
        self._included.setdefault(key, {})[name] = None

    def _need(self, place: str, name: str, path: tuple[str, ...]) -> _Key:
        file, step = self._files[place], f"{place}({name})"
        if step in path:
            raise ScriptError("expected includes without a cycle, got: " + " -> ".join((self._script, *path, step)))
        code = file.definitions[name]()
        key = (place, code.defines[0])
        if key not in self._needed:
            self._needed[key], self._together[key] = code, [key]
            self.add_used_by(file, code, *path, step)
            for used in code.names:
                if used in file.definitions and used not in file.includes and used not in code.defines:
                    self._join(key, self._need(place, used, (*path, step)))
        return key

    def _join(self, one: _Key, other: _Key) -> None:
        """Lets two definitions be made together."""
        if self._together[one] is not self._together[other]:
            self._together[one] += self._together[other]
            for key in self._together[other]:
                self._together[key] = self._together[one]

    def code(self) -> list[Code]:
        """The code of all definitions."""
        return [*self._needed.values()]

    def name_of(self, file: str, name: str) -> str:
        """What Redis gets for the name of a definition of an included file."""
        return self._names[self._places[file, name], name]

    def renamed(self, code: Code, file: LuaFile, numbers: Mapping[str, Mapping[str, int]]) -> str:
        """What Redis gets for code of a file. numbers: of keys and arguments."""
        names = {used: self.name_of(of, used) for used, of in _included_by(file, code)}
        for table, of in numbers.items():
            for used in code.keys if table == "key" else code.args:
                names[f"{table}.{used}"], names[f"{table}s.{used}"] = f"{table}[{of[used]}]", f"{table}s[{of[used]}]"
        return code.renamed(names)

    def parts(self, numbers: Mapping[str, Mapping[str, int]]) -> list[Part]:
        """Lua code of a table that makes definitions when one is first used, with those that they use in their file."""
        if not self._needed:
            return []
        made = [(len(names), self._made(keys, names, numbers)) for keys, names in self._clusters]
        return [
            Part(f"local lib = {{{'nil,' * len(self._names)}}}"),
            Part("setmetatable(lib, {__index = function(_, n)"),
            *_nth(made, 1),
            Part("return lib[n]\nend})"),
        ]

    def _made(self, keys: Sequence[_Key], names: Sequence[str], numbers: Mapping[str, Mapping[str, int]]) -> list[Part]:
        """Definitions in their order in the file; those that are included are put into `lib`."""
        place = keys[0][0]
        codes = sorted([self._needed[key] for key in keys], key=lambda code: code.lines[0])
        numbered = ", ".join([self._names[place, name] for name in names])
        return [
            *[Part(self.renamed(code, self._files[place], numbers), place, code.lines) for code in codes],
            Part(f"{numbered} = {', '.join(names)}"),
        ]

    @cached_property
    def _clusters(self) -> list[tuple[list[_Key], list[str]]]:
        """The definitions that are made together, with the names of those that are included."""
        clusters = {id(keys): keys for keys in self._together.values()}.values()
        return [(keys, [name for key in keys for name in self._included.get(key, ())]) for keys in clusters]

    @cached_property
    def _names(self) -> Mapping[tuple[str, str], str]:
        """What Redis gets for the included definitions: those that are made together have numbers in a row."""
        included = [(keys[0][0], name) for keys, names in self._clusters for name in names]
        return {one: f"lib[{number}]" for number, one in enumerate(included, 1)}

    def _place_of(self, file: str, name: str, path: tuple[str, ...]) -> str:
        """The path of the file with a definition: in the folder `{dialect}`, or the nearest one around it."""
        if (file, name) not in self._places:
            places = list(dict.fromkeys(file.format(dialect=folder).removeprefix("/") for folder in self._folders))
            found = [place for place in places if self._defines(place, name)]
            if not found:
                files, by = " or ".join(f"`{place}.lua`" for place in places), path[-1] if path else self._script
                raise ScriptError(f"expected {files} to define `{name}`, which `{by}` includes")
            self._places[file, name] = found[0]
        return self._places[file, name]

    def _defines(self, place: str, name: str) -> bool:
        if place not in self._files:
            try:
                self._files[place] = lua_file(self._read(f"{place}.lua"))
            except ScriptError:
                return False
        return name in self._files[place].definitions


def _included_by(file: LuaFile, code: Code) -> list[tuple[str, str]]:
    """What this code of a file uses of what the file includes, which may be another definition of a name of its own."""
    return [(name, file.includes[name]) for name in code.names if name in file.includes and name not in code.defines]


def _nth(made: Sequence[tuple[int, list[Part]]], first: int) -> list[Part]:
    """Lua code that makes number `n` of those from `first` on. made: how many each file has, and the code."""
    if len(made) == 1:
        return made[0][1]
    less, more = made[: len(made) // 2], made[len(made) // 2 :]
    middle = first + sum([count for count, _ in less])
    return [Part(f"if n < {middle} then"), *_nth(less, first), Part("else"), *_nth(more, middle), Part("end")]
