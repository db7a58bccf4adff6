"""Scripts of the package with other texts in some of their files, for this process only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import pytest

from spark_bull.core.errors import ScriptError
from spark_bull.core.store import connection, scripts
from spark_bull.core.store.scripts import Script, assemble
from tests.support.lua_scripts import FILES, text_of


@dataclass(frozen=True)
class Alteration:
    """A text of a file of lua/ (its path without suffix), which occurs once, and the one in its place."""

    file: str
    text: str
    instead: str

    def __call__(self, whole: str) -> str:
        count = whole.count(self.text)
        assert count == 1, f"expected {self.text!r} once in {self.file}.lua, found it {count} times"
        return whole.replace(self.text, self.instead)


#: The key that moves the clock of the scripts, ms.
CLOCK = "proof:clock"
#: Lets a test move the clock of Redis.
MOVABLE_CLOCK = Alteration(
    "lib/values",
    "return now[1] * 1000 + math.floor(now[2] / 1000)",
    f"return now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(redis.call('GET', '{CLOCK}') or 0)",
)


@contextmanager
def altered_scripts(*alterations: Alteration) -> Iterator[None]:
    """Within the block, this process runs the scripts with these alterations."""
    texts = {one.file: one(text_of(one.file)) for one in alterations}
    packaged = {file: text_of(file) for file in FILES}

    def read(path: str) -> str:
        name = path.removesuffix(".lua")
        if name not in packaged:
            raise ScriptError(f"expected a Lua file `{path}`, found none")
        return texts.get(name, packaged[name])

    @cache
    def load(name: str) -> Script:
        return assemble(name, read)

    with pytest.MonkeyPatch.context() as patch:
        for module in (connection, scripts):
            patch.setattr(module, "load", load)
        yield
