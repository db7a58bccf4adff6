"""Loads the Lua scripts of the package: their contracts and includes.

A script starts with its contract, in comment lines:

    -- What the script does, in one sentence.
    -- @keys wait active? stages...     names of KEYS; `name?` is optional; a last `name...` takes all remaining keys
    -- @args now chunk                  names of ARGV, likewise
    -- @returns the reply
    -- @include bullmq/lib/add_jobs    a file in lua/, loaded once, before the body

The loader binds the names: the body reads `key.wait` and `arg.now`, never KEYS[1]. Files are read with
importlib.resources, which also works in a zip file passed to --py-files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

from spark_bull.errors import ScriptError

Read = Callable[[str], str]
Value = str | bytes | int | float

_TAG = re.compile(r"^-- @(keys|args|returns|include)\b[ \t]*(.*)$", re.MULTILINE)


_OPTIONAL, _REST = "?", "..."


def _without_suffix(name: str) -> str:
    """Removes the suffix of a name in a contract."""
    return name.removesuffix(_OPTIONAL).removesuffix(_REST)


@dataclass(frozen=True)
class Script:
    """A loaded script: its contract, its source with all includes, and its SHA1 for EVALSHA."""

    name: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    returns: str
    source: str
    sha: str

    def bind_keys(self, values: Mapping[str, str | Iterable[str] | None]) -> list[str]:
        """Returns KEYS in the order of the contract. Raises ScriptError for a missing or empty key.

        An absent optional key is replaced by the first key, which the script recognizes: any other string may be denied
        by the ACL's key patterns, or belong to another slot of a cluster.
        """
        bound: list[str] = []
        for name, is_optional in self._key_names:
            value = values.get(name)
            if value is None and is_optional:
                value = bound[0] if bound else ""
            if value is None:
                raise self._missing("key", name)
            if isinstance(value, str):
                bound.append(value)
            else:
                bound.extend(map(str, value))
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

    @cached_property
    def _key_names(self) -> list[tuple[str, bool]]:
        """The names of the keys without suffixes, and whether they are optional."""
        return [(_without_suffix(name), name.endswith(_OPTIONAL)) for name in self.keys]

    @cached_property
    def _arg_names(self) -> list[str]:
        return [_without_suffix(name) for name in self.args]

    def _missing(self, kind: str, name: str) -> ScriptError:
        return ScriptError(f"script `{self.name}` expects the {kind} `{name}`, got none")


@cache
def load(name: str) -> Script:
    """Loads the script `lua/<name>.lua`, such as `load("bullmq/add")`.

    Raises ScriptError if a file is missing, a contract is incomplete, or includes are circular.
    """
    return assemble(name, _read_packaged)


def _read_packaged(path: str) -> str:
    try:
        return resources.files("spark_bull").joinpath(f"lua/{path}").read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, KeyError):
        raise ScriptError(f"expected a Lua file `{path}` in the package, found none") from None


def assemble(name: str, read: Read) -> Script:
    """Builds a script from the files that `read(path)` returns; see `load`."""
    body = read(f"{name}.lua")
    tags = _TAG.findall(body)
    contract = {tag: value for tag, value in tags if tag != "include"}
    missing = {"keys", "args", "returns"} - contract.keys()
    if missing:
        raise ScriptError(f"script `{name}` has an incomplete contract, missing: {', '.join(sorted(missing))}")
    keys, args = tuple(contract["keys"].split()), tuple(contract["args"].split())
    included: dict[str, str] = {}
    for include in _includes(body):
        _resolve(include, read, included, path=(name,))
    source = "\n".join([_binding("key", "KEYS", keys), _binding("arg", "ARGV", args), *included.values(), body])
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, keys, args, contract["returns"], source, sha)


def _includes(text: str) -> list[str]:
    return [value.strip() for tag, value in _TAG.findall(text) if tag == "include"]


def _resolve(name: str, read: Read, done: dict[str, str], path: tuple[str, ...]) -> None:
    """Adds `name` to `done`, after all files that it includes."""
    if name in path:
        raise ScriptError("expected includes without a cycle, got: " + " -> ".join((*path, name)))
    if name in done:
        return
    text = read(f"{name}.lua")
    for include in _includes(text):
        _resolve(include, read, done, (*path, name))
    done[name] = text


def _binding(table: str, source: str, names: tuple[str, ...]) -> str:
    """Returns Lua code that binds the names of a contract to KEYS or ARGV.

    Most names are in one constructor: a table that grows name by name takes several times as long.
    """
    fixed = [name for name in names if not name.endswith(_REST)]
    entries = [f"{_without_suffix(name)} = {_value(name, f'{source}[{i}]', source)}" for i, name in enumerate(fixed, 1)]
    lines = [f"local {table} = {{{', '.join(entries)}}}"]
    if len(fixed) < len(names):
        rest = _without_suffix(names[-1])
        lines.append(f"{table}.{rest} = {{}}")
        lines.append(f"for i = {len(names)}, #{source} do")
        lines.append(f"  {table}.{rest}[i - {len(fixed)}] = {source}[i]")
        lines.append("end")
    return "\n".join(lines)


def _value(name: str, element: str, source: str) -> str:
    """Returns the Lua expression of a name's value: an absent optional key is nil."""
    return f"{element} ~= {source}[1] and {element} or nil" if name.endswith(_OPTIONAL) else element
