"""Loads the Lua scripts of the package: their contracts and includes.

A script starts with its contract, in comment lines:

    -- What the script does, in one sentence.
    -- @args ids...                     a name of ARGV that takes all remaining ones
    -- @keys ledger? stages...          names of KEYS that the code does not show, see below
    -- @returns the reply
    -- @include lib: once jobs(is_job)  what files of a folder in lua/ define: `once` of once.lua, `is_job` of jobs.lua

The loader binds the names: the body reads `key.wait` and `arg.now`, never KEYS[1]; `call` is `redis.call`. It finds
both in the code of the script and its includes (`keys.wait` or `args.base` where they belong to another queue). `@args`
and `@keys` name the others: optional keys (`name?`), a last one that takes all that remain (`name...`), and keys looked
up by a variable.

A file that others include has definitions of one subject: `local function push` or `local LIMITS = {…}` at the start of
a line, never nil. A script gets those that it uses, and what they use. A file has neither a variable nor a field in a
constructor with a name that it includes. It may include a name of its own: for the definition that the dialect has, or
to have it made only when it is first used, see below.

The script `bullmq/add` is `verbs/add.lua` unless there is a `bullmq/add.lua`. In an include, `{dialect}` is the folder
of the dialect whose script is loaded, or the nearest one around it whose file has the definition. So `{dialect}/lib:
pause` is in `bull/bull1/lib/pause.lua`, else in `bull/lib/pause.lua`, else in `lib/pause.lua`. So a file that differs
between dialects only in what it includes serves all of them.

Redis gets the code without comments, blank lines and indentation, and some names as numbers, as each call would make
tables and functions for them. `key` is KEYS, so `key.wait` is `key[3]`, also where `key` has the keys of another queue.
If the code has `key[name]`, keys have their names, too. No other variable, and no argument, is looked up by a name, and
no table that a file makes with names can stand for `key` or `arg`. What a file includes is `lib[7]`: it is made when it
is first used, with what it uses in its file. Most calls of a script use few of its functions, and to make one takes
about as long as to call it. `located` finds the file and the line of an error.

A script of a dialect with a file `lib/key_types.lua` first checks that its keys have these types, or else calls
`check_types` of `lib/jobs.lua`.

Files are read with pkgutil, which also works in a zip file passed to --py-files.

Commands and calls of scripts are made here, as they are sent.
"""

from __future__ import annotations

import hashlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final

from hiredis import pack_command

from spark_bull.core.errors import ScriptError
from spark_bull.core.store.lua_files import Includes, LuaFile, Part, Read, lua_file

Value = str | bytes | int | float

#: Lua finds a local variable faster than a global one.
_TABLES = "local key, arg, call = KEYS, ARGV, redis.call"
_OPTIONAL, _REST = "?", "..."
#: For each type, a command that fails for keys of other types and returns a number: Lua gets that in a fraction of the
#: time that it takes to get the table that TYPE returns.
_COUNTING: Final[Mapping[str, str]] = {
    "list": "LLEN",
    "zset": "ZCARD",
    "set": "SCARD",
    "hash": "HLEN",
    "stream": "XLEN",
    "string": "STRLEN",
}
_KEY_TYPE = re.compile(r"^  (\w+) = '(\w+)',$", re.MULTILINE)
#: The include that checks the types of keys.
CHECK: Final = "lib/jobs"
#: What an error of Redis says of the script, and of a line of the text that Redis got.
_NAMED = re.compile(r"script `([\w/-]+)`")
_SHA, _LINE = re.compile(r"\b(?:f_|script: )([0-9a-f]{40})\b"), re.compile(r"@?\buser_script: ?(\d+)")


def _without_suffix(name: str) -> str:
    """Removes the suffix of a name in a contract."""
    return name.removesuffix(_OPTIONAL).removesuffix(_REST)


@dataclass(frozen=True)
class Script:
    """A loaded script: its contract, its source with all includes, and its SHA1 for EVALSHA.

    parts: what the source consists of.
    """

    name: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    returns: str
    source: str
    sha: str
    parts: tuple[Part, ...] = field(repr=False)

    def bind_keys(self, values: Mapping[str, str | Iterable[str] | None]) -> list[str]:
        """Returns KEYS in the order of the contract. Raises ScriptError for a missing or empty key.

        An absent optional key is replaced by the first key, which the script recognizes. Any other string may be denied
        by the ACL's key patterns, or belong to another slot of a cluster.
        """
        bound: list[str] = []
        for name, is_optional in self._key_names:
            value = values.get(name)
            if isinstance(value, str):
                bound.append(value)
            elif value is not None:
                bound.extend(map(str, value))
            elif is_optional:
                bound.append(bound[0] if bound else "")
            else:
                raise self._missing("key", name)
        if "" in bound:
            raise ScriptError(f"script `{self.name}` expects non-empty keys, got: {', '.join(map(repr, bound))}")
        return bound

    def bind_args(self, values: Mapping[str, Value | Iterable[Value]]) -> list[Value]:
        """Returns ARGV in the order of the contract. Raises ScriptError for a missing argument."""
        bound: list[Value] = []
        for name in self._arg_names:
            if name not in values:
                raise self._missing("argument", name)
            value = values[name]
            if isinstance(value, (str, bytes, int, float)):
                bound.append(value)
            else:
                bound.extend(value)
        return bound

    def place_of(self, line: int) -> str:
        """The file and line of a line of the source."""
        for part in self.parts:
            count = part.text.count("\n") + 1
            if line <= count:
                return f"core/lua/{part.file}.lua:{part.lines[line - 1]}" if part.file else f"script `{self.name}`"
            line -= count
        return f"script `{self.name}`"

    @cached_property
    def _key_names(self) -> list[tuple[str, bool]]:
        """The names of the keys without suffixes, and whether they are optional."""
        return [(_without_suffix(name), name.endswith(_OPTIONAL)) for name in self.keys]

    @cached_property
    def _arg_names(self) -> list[str]:
        return [_without_suffix(name) for name in self.args]

    def _missing(self, kind: str, name: str) -> ScriptError:
        return ScriptError(f"script `{self.name}` expects the {kind} `{name}`, got none")


#: The loaded scripts by their SHA1.
_LOADED: Final[dict[str, Script]] = {}


@cache
def load(name: str) -> Script:
    """Loads a script by its name, such as `load("bullmq/add")`.

    Raises ScriptError if a file or a definition is missing, a contract is incomplete, or includes are circular.
    """
    script = assemble(name, _read_packaged)
    _LOADED[script.sha] = script
    return script


def located(message: str, what: str = "") -> str:
    """Names the file and line of the package for each line of a script in an error of Redis, if the script is known.

    what: names the script as "script `…`": Valkey 9 tells the line only.
    """
    sha, name = _SHA.search(message), _NAMED.search(what)
    script = _LOADED.get(sha[1]) if sha else load(name[1]) if name else None
    return _LINE.sub(lambda line: script.place_of(int(line[1])), message) if script else message


def _read_packaged(path: str) -> str:
    text = _packaged(path)
    if text is None:
        raise ScriptError(f"expected a Lua file `{path}` in the package, found none")
    return text


@cache
def _packaged(path: str) -> str | None:
    try:
        found = pkgutil.get_data("spark_bull.core", f"lua/{path}")
    except OSError:
        return None
    return found.decode() if found is not None else None


def assemble(name: str, read: Read) -> Script:
    """Builds a script from the files that `read(path)` returns; see `load`."""
    folder, _, verb = name.rpartition("/")
    path, script = _script_file(name, verb, read)
    if "returns" not in script.contract:
        raise ScriptError(f"script `{name}` has an incomplete contract, missing: returns")
    includes = Includes(name, folder, read)
    includes.add_used_by(script, script.body)
    declared = script.contract.get("keys", "")
    keys = _names(declared, script.body.keys, *[code.keys for code in includes.code()])
    types = {name: kind for name, kind in key_types(folder, read).items() if name in keys}
    if types:
        includes.add(CHECK, "check_types", name)
    args = _names(script.contract.get("args", ""), script.body.args, *[code.args for code in includes.code()])
    numbers = {"key": _numbers(keys), "arg": _numbers(args)}
    looks_up = script.body.looks_up or any(code.looks_up for code in includes.code())
    head = [_TABLES, *_prepared("key", keys), *_prepared("arg", args), *(_named(numbers["key"]) if looks_up else [])]
    parts = (
        *map(Part, head),
        *includes.parts(numbers),
        *map(Part, _check({numbers["key"][name]: kind for name, kind in types.items()}, includes)),
        Part(includes.renamed(script.body, script, numbers), path, script.body.lines),
    )
    source = "\n".join([part.text for part in parts])
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, keys, args, script.contract["returns"], source, sha, parts)


def key_types(folder: str, read: Read) -> dict[str, str]:
    """The types of keys by their names, as the dialect of a folder, or one around it, says; empty if none does."""
    if not folder:
        return {}
    try:
        return dict(_KEY_TYPE.findall(read(f"{folder}/lib/key_types.lua")))
    except ScriptError:
        return key_types(folder.rpartition("/")[0], read)


def _script_file(name: str, verb: str, read: Read) -> tuple[str, LuaFile]:
    """The dialect's own file, else the file for all dialects, with its path."""
    try:
        return name, lua_file(read(f"{name}.lua"))
    except ScriptError as missing:
        try:
            return f"verbs/{verb}", lua_file(read(f"verbs/{verb}.lua"))
        except ScriptError:
            raise missing from None


def _names(contract: str, *used: frozenset[str]) -> tuple[str, ...]:
    """The names of KEYS or ARGV: those declared and those in the code. Optional ones come later, `name...` last."""
    declared = contract.split()
    names = {*declared, *frozenset().union(*used).difference(map(_without_suffix, declared))}
    return tuple(sorted(names, key=lambda name: (name.endswith(_REST), name.endswith(_OPTIONAL), name)))


def _numbers(names: Sequence[str]) -> dict[str, int]:
    return {_without_suffix(name): number for number, name in enumerate(names, 1)}


def _prepared(table: str, names: Sequence[str]) -> Iterator[str]:
    """Lua code by which a last name has the list of all values that remain, and absent optional ones are nil."""
    if names and names[-1].endswith(_REST):
        last = len(names)
        yield f"do\nlocal rest = {{}}\nfor i = {last}, #{table} do"
        yield f"  rest[i - {last - 1}], {table}[i] = {table}[i], nil\nend\n{table}[{last}] = rest\nend"
    for number, name in enumerate(names, 1):
        if name.endswith(_OPTIONAL):
            yield f"if {table}[{number}] == {table}[1] then {table}[{number}] = nil end"


def _named(numbers: Mapping[str, int]) -> Iterator[str]:
    """Lua code by which keys can also be found by their names."""
    yield from (f"key.{name} = key[{number}]" for name, number in numbers.items())


def _check(types: Mapping[int, str], includes: Includes) -> Iterator[str]:
    """Lua code that fails if a key has another type. A command that returns a number tells it fastest."""
    if types:
        commands = "\n".join(f"  call('{_COUNTING[kind]}', key[{number}])" for number, kind in types.items())
        yield f"do\nlocal is_sound, why = pcall(function()\n{commands}\nend)"
        pairs = ", ".join(f"[key[{number}]] = '{kind}'" for number, kind in types.items())
        yield f"if not is_sound then\n  {includes.name_of(CHECK, 'check_types')}({{{pairs}}}, why)\nend\nend"


Command = tuple[Value, ...]

#: Commands without a key.
_WITHOUT_KEY: Final = frozenset(["CLIENT", "CLUSTER", "CONFIG", "INFO", "PING", "SCAN", "TIME", "WAIT"])
#: Commands of two words, such as MEMORY USAGE.
_OF_TWO_WORDS: Final = frozenset(["MEMORY"])


def key_of(command: Command) -> str | bytes | None:
    """The first key of a command; None for one without a key."""
    name, at = command[0], 1
    if name in _WITHOUT_KEY or (name == "EVAL" and not command[2]):
        return None
    if name == "EVAL":  # EVAL <script> <number of keys> <key>…
        at = 3
    elif name == "XREAD":  # XREAD … STREAMS <key>…
        at = command.index("STREAMS") + 1
    elif name in _OF_TWO_WORDS:
        at = 2
    key = command[at]
    return key if isinstance(key, bytes) else str(key)


def packed(command: Command) -> bytes:
    """A command as it is sent: `*`, the number of its parts, a line break, and the parts."""
    sent: bytes = pack_command(command)  # type: ignore[arg-type]  # of any length
    return sent


def script_command(name: str, keys: Mapping[str, Any], args: Mapping[str, Any]) -> Command:
    """The command that runs a script in a pipeline; `Connection.script` sends less when Redis knows the script."""
    script = load(name)
    return CallStart(script, keys).in_full(script.bind_args(args))


class CallStart:
    """The script and the keys of calls, which are packed once. Raises the ScriptError of `Script.bind_keys`."""

    def __init__(self, script: Script, keys: Mapping[str, Any]) -> None:
        self._script = script
        #: KEYS in the order of the contract.
        self.keys = script.bind_keys(keys)

    def with_args(self, args: Sequence[Value]) -> bytes:
        """The call with these arguments, by the SHA1 of the script, as it is sent."""
        return b"*%d\r\n%b%b" % (3 + len(self.keys) + len(args), self._packed, _parts(*args))

    def in_full(self, args: Sequence[Value]) -> Command:
        """The call with these arguments for a server that may not know the script."""
        return ("EVAL", self._script.source, len(self.keys), *self.keys, *args)

    @cached_property
    def _packed(self) -> bytes:
        return _parts("EVALSHA", self._script.sha, len(self.keys), *self.keys)


class RepeatedKeys(dict[str, Any]):
    """Keys by their names, for calls that have the same ones again: each script binds and packs them once.

    Between two calls of a worker they leave the caches of the CPU: to bind and to pack them takes half as long as to
    receive a hundred jobs.
    """

    def __init__(self, keys: Mapping[str, Any]) -> None:
        super().__init__(keys)
        #: By the SHA1 of the script.
        self._starts: dict[str, CallStart] = {}

    def start_of(self, script: Script) -> CallStart:
        """The start of the calls of a script with these keys."""
        if script.sha not in self._starts:
            self._starts[script.sha] = CallStart(script, self)
        return self._starts[script.sha]


def _parts(*values: Value) -> bytes:
    """Parts of a command, as they are sent."""
    _, _, parts = packed(values).partition(b"\r\n")
    return parts
