"""Keys of a queue that get another type for a while."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from redis import Redis

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.queue.handle.handle import QueueHandle
from tests.support.lua_scripts import FILES, folders_of, text_of

#: A command that makes a key of each type.
MAKING: Final[Mapping[str, tuple[Any, ...]]] = {
    "string": ("SET", "<key>", "x"),
    "list": ("RPUSH", "<key>", "x"),
    "set": ("SADD", "<key>", "x"),
    "zset": ("ZADD", "<key>", 1, "x"),
    "hash": ("HSET", "<key>", "x", "x"),
    "stream": ("XADD", "<key>", "*", "x", "x"),
}

# Scripts, as a worker may take or add what is in the key at any time.
_DAMAGE: Final = """
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], KEYS[2]) end
redis.call(unpack(ARGV))
"""
_REPAIR: Final = """
redis.call('DEL', KEYS[1])
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[1]) end
"""


def key_types(dialect: str) -> dict[str, str]:
    """The types of the keys of a queue, by their names in scripts."""
    file = next(
        f"{one}/lib/key_types" for one in folders_of(DIALECTS[dialect].folder) if f"{one}/lib/key_types" in FILES
    )
    return dict(re.findall(r"(\w+) = '(\w+)'", text_of(file)))


def wrong_types(dialect: str) -> list[tuple[str, str]]:
    """Each key of a queue by its name, with one type that it must not have."""
    return [(name, "hash" if kind == "string" else "string") for name, kind in key_types(dialect).items()]


class DamagedKey:
    """A key that can get another type."""

    def __init__(self, client: Redis, handle: QueueHandle, name: str, kind: str) -> None:
        self.key = handle.keys[name]
        self._client = client
        self._saved = f"{handle.keys.prefix}-saved:{self.key}"
        self._kind = kind

    def damage(self) -> None:
        making = [self.key if part == "<key>" else part for part in MAKING[self._kind]]
        self._client.eval(_DAMAGE, 2, self.key, self._saved, *making)

    def repair(self) -> None:
        self._client.eval(_REPAIR, 2, self.key, self._saved)

    @contextmanager
    def damaged(self) -> Iterator[None]:
        self.damage()
        try:
            yield
        finally:
            self.repair()
