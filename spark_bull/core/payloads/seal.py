"""Seals texts with AES-256-GCM, as JSON objects: {"$sealed":{"v":1,"kid":"a","iv":"…","ct":"…"}}.

`ct` is the ciphertext with the tag of 16 bytes behind it; `iv`, the nonce, has 12 bytes; both are base64. What the text
is, the payload or the result of a job of a queue, is bound to it as associated data: it opens as nothing else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from spark_bull.core.errors import OptionError
from spark_bull.core.options.values import KeySource

if TYPE_CHECKING:
    from types import ModuleType


def aes_gcm() -> ModuleType:
    """The module with the cipher. Raises OptionError without the package cryptography."""
    try:
        return import_module("spark_bull.core.payloads.aes_gcm")
    except ModuleNotFoundError as error:
        _raise_missing_package("cryptography", "encryptWith", "encrypt", error)


def objects() -> ModuleType:
    """The module that stores objects. Raises OptionError without the package fsspec."""
    try:
        return import_module("spark_bull.core.payloads.objects")
    except ModuleNotFoundError as error:
        _raise_missing_package("fsspec", "offloadTo", "offload", error)


def _raise_missing_package(package: str, option: str, extra: str, error: ModuleNotFoundError) -> NoReturn:
    raise OptionError(
        f"expected the package {package} for `{option}`, found none ({error.name}): "
        f"pip install 'spark-bull[{extra}]', on the executors too"
    ) from None


SEALED: Final = "$sealed"
#: The version of the format of sealed and stored payloads.
VERSION: Final = 1
_NONCE_BYTES: Final = 12


class NotOpened(Exception):
    """A sealed or stored text cannot be opened. The message goes on from `expected … to`, and names no job.

    may_pass: whether it may open later, as the file system of the object has failed.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


def seal(text: str, kid: str, key: bytes, bound: bytes, source: str | None = None) -> str:
    """Seals a text.

    bound: associated data. source: names the job whose text it is, in such a way that no other job has the same. Its
    nonce is a keyed hash of both: the same text of the same source is sealed to the same bytes. None: a random nonce.
    """
    content = text.encode()
    nonce = os.urandom(_NONCE_BYTES) if source is None else _nonce(key, source, bound, content)
    sealed = aes_gcm().encrypt(key, nonce, content, bound)
    parts = f'"v":{VERSION},"kid":{json.dumps(kid)},"iv":"{_base64(nonce)}","ct":"{_base64(sealed)}"'
    return f'{{"{SEALED}":{{{parts}}}}}'


def unseal(text: str, keys: Mapping[str, bytes], bound: bytes) -> str:
    """Opens a sealed text. keys: by id. Raises NotOpened."""
    parts = parts_of(text, SEALED)
    kid = parts.get("kid")
    if not isinstance(kid, str) or kid not in keys:
        raise NotOpened(f"be sealed with one of the keys {', '.join(keys)}, got key {kid!r}: add it to `encryptWith`")
    try:
        nonce, sealed = (base64.b64decode(parts[name], validate=True) for name in ("iv", "ct"))
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise NotOpened("have `iv` and `ct` in base64, got something else: it is damaged") from None
    opened: bytes | None = aes_gcm().decrypt(keys[kid], nonce, sealed, bound)
    if opened is None:
        raise NotOpened(
            f"open with key {kid!r}, it does not: the key of this id is another one, the text is damaged, or it was "
            "sealed for another queue or field"
        )
    return opened.decode()


def parts_of(text: str, name: str) -> dict[str, Any]:
    """The members of a sealed or stored text, which are in its member `name`. Raises NotOpened."""
    try:
        parts = json.loads(text)[name]
        version = parts["v"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NotOpened(f"be an object `{name}` with its version `v`, got: {text[:100]!r}: it is damaged") from None
    if version != VERSION:
        raise NotOpened(f"have version {VERSION}, got {version!r}: a newer spark_bull has written it")
    return dict(parts)


def _nonce(key: bytes, source: str, bound: bytes, content: bytes) -> bytes:
    own_key = hmac.digest(key, b"spark_bull nonce", "sha256")
    named = hashlib.sha256(source.encode()).digest() + hashlib.sha256(bound).digest()
    return hmac.digest(own_key, named + content, "sha256")[:_NONCE_BYTES]


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


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
            "them a file (`file:`). Spark shows spark.executorEnv.<name> in its UI, unless the name contains SECRET"
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
