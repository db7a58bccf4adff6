"""Lua scripts as package data: the loader, the contract at each head, the includes.

A script starts with its contract, in comment lines:

    -- What it does, in a sentence.
    -- @keys wait active? stages...     names of KEYS; `name?` may be absent; a last `name...` takes all that are left
    -- @args now chunk                  names of ARGV, likewise
    -- @returns what comes back
    -- @include bullmq/lib/add_jobs    a file below lua/, loaded once, before the body

The loader binds the names: the body reads `key.wait` and `arg.now`, never KEYS[1]. Files are read
through importlib.resources, so this works from a zip sent with --py-files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from spark_bull.errors import ScriptError

Read = Callable[[str], str]
Value = str | bytes | int | float

_TAG = re.compile(r"^-- @(keys|args|returns|include)\b[ \t]*(.*)$", re.MULTILINE)


_OPTIONAL, _REST = "?", "..."


def _bare(name: str) -> str:
    """A name of a contract without what it says about the key."""
    return name.removesuffix(_OPTIONAL).removesuffix(_REST)


@dataclass(frozen=True)
class Script:
    """A loaded script: its contract, the whole source and the SHA1 that EVALSHA takes."""

    name: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    returns: str
    source: str
    sha: str

    def bind_keys(self, values: Mapping[str, str | Iterable[str] | None]) -> list[str]:
        """KEYS in the contract's order. Raises ScriptError for a missing one, and for an empty text.

        An optional key that is None is sent as the first key once more, which tells the script that it is absent: no
        other text is sure to be allowed by an ACL's patterns, and to be in the queue's slot of a cluster.
        """
        present = {name: value for name, value in values.items() if value is not None}
        for name in self.keys:
            if name.endswith(_OPTIONAL):
                present.setdefault(_bare(name), present.get(self.keys[0], ""))
        bound = [str(value) for value in self._bind("key", self.keys, present)]
        if "" in bound:
            raise ScriptError(
                f"script `{self.name}` expects keys that are not empty, got: {', '.join(map(repr, bound))}"
            )
        return bound

    def bind_args(self, values: Mapping[str, Value | Iterable[Value]]) -> list[Value]:
        """ARGV in the contract's order. Raises ScriptError for a missing one."""
        return self._bind("argument", self.args, values)

    def _bind(self, kind: str, names: tuple[str, ...], values: Mapping[str, Value | Iterable[Value]]) -> list[Value]:
        bound: list[Value] = []
        for name in names:
            try:
                value = values[_bare(name)]
            except KeyError:
                raise ScriptError(f"script `{self.name}` expects the {kind} `{_bare(name)}`, got none") from None
            if isinstance(value, (str, bytes, int, float)):
                bound.append(value)
            else:
                bound.extend(value)
        return bound


@cache
def load(name: str) -> Script:
    """The script of `lua/<name>.lua`, such as `load("bullmq/add")`.

    Raises ScriptError when a file is missing, a contract is incomplete or includes form a circle.
    """
    return assemble(name, _read_packaged)


def _read_packaged(path: str) -> str:
    try:
        return resources.files("spark_bull").joinpath(f"lua/{path}").read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, KeyError):
        raise ScriptError(f"expected a Lua file `{path}` in the package, found none") from None


def assemble(name: str, read: Read) -> Script:
    """Builds one script from the files that `read(path)` returns; see `load`."""
    body = read(f"{name}.lua")
    tags = _TAG.findall(body)
    contract = {tag: value for tag, value in tags if tag != "include"}
    missing = {"keys", "args", "returns"} - contract.keys()
    if missing:
        raise ScriptError(f"script `{name}` lacks in its contract: {', '.join(sorted(missing))}")
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
    """Puts `name`, after all that it includes, into `done`."""
    if name in path:
        raise ScriptError("includes form a circle: " + " -> ".join((*path, name)))
    if name in done:
        return
    text = read(f"{name}.lua")
    for include in _includes(text):
        _resolve(include, read, done, (*path, name))
    done[name] = text


def _binding(table: str, source: str, names: tuple[str, ...]) -> str:
    """Lua that gives the positions of KEYS or ARGV their names."""
    lines = [f"local {table} = {{}}"]
    for position, name in enumerate(names, start=1):
        bare = _bare(name)
        if bare == name:
            lines.append(f"{table}.{bare} = {source}[{position}]")
        elif name.endswith(_OPTIONAL):
            lines.append(f"if {source}[{position}] ~= {source}[1] then {table}.{bare} = {source}[{position}] end")
        else:
            lines.append(f"{table}.{bare} = {{}}")
            lines.append(f"for i = {position}, #{source} do")
            lines.append(f"  {table}.{bare}[i - {position - 1}] = {source}[i]")
            lines.append("end")
    return "\n".join(lines)
