"""Reads keys from the environment or from files. Only this process has them: they are not pickled with a plan."""

from __future__ import annotations

import base64
import binascii
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from spark_bull.core.errors import OptionError
from spark_bull.core.model.key_sources import KeySource

#: Bytes of a key of AES-256.
KEY_BYTES: Final = 32
_WANTED: Final = f"expected {KEY_BYTES} bytes, as they are in a file, in hex or in base64"

#: 32 characters of hex are a key of 16 bytes.
_HALF_A_KEY: Final = re.compile(rb"[0-9a-fA-F]{32}")


def key_of(source: KeySource) -> bytes:
    """The key at a source. Raises OptionError, which never shows what is there."""
    if source.kind == "file":
        try:
            state = os.stat(source.where)
            return _key_in_file(source, state.st_mtime_ns, state.st_size)
        except OSError as error:
            raise OptionError(f"{_named(source)}: {_WANTED}, got no readable file: {error.strerror}") from None
    text = os.environ.get(source.where)
    if text is None:
        raise OptionError(
            f"{_named(source)}: {_WANTED}, got no such variable: set it for the driver and for the executors, or give "
            "them a file (`file:`); Spark shows spark.executorEnv.<name> in its UI, unless the name contains SECRET"
        )
    return _decoded(source, text)


@lru_cache(maxsize=64)
def _key_in_file(source: KeySource, _changed_ns: int, _size: int) -> bytes:
    content = Path(source.where).read_bytes()
    is_raw = len(content) == KEY_BYTES and not _HALF_A_KEY.fullmatch(content)
    return content if is_raw else _decoded(source, content.decode("latin-1"))


@lru_cache(maxsize=64)
def _decoded(source: KeySource, text: str) -> bytes:
    text = text.strip()
    try:
        is_hex = _HALF_A_KEY.fullmatch(text.encode()) or len(text) == 2 * KEY_BYTES
        key = bytes.fromhex(text) if is_hex else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise OptionError(f"{_named(source)}: {_WANTED}, got {len(text)} characters of something else") from None
    if len(key) != KEY_BYTES:
        raise OptionError(f"{_named(source)}: {_WANTED}, got {len(key)} bytes; `openssl rand -base64 32` makes a key")
    return key


def _named(source: KeySource) -> str:
    where = "environment variable" if source.kind == "env" else "file"
    return f"`encryptWith`, key {source.kid!r} in the {where} {source.where}"
