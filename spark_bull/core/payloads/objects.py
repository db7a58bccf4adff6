"""Objects in a folder of any file system that fsspec knows. Needs the package fsspec."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from spark_bull.core.errors import OptionError


class Found(NamedTuple):
    """An object of a folder. path: below the root. modified_ms: since 1970; None: the file system does not tell."""

    path: str
    modified_ms: int | None


def write(root: str, path: str, content: bytes) -> None:
    """Writes an object, also if it is there: its time of change is a new one. Readers find it whole or not at all."""
    system, base = _file_system(root)
    whole = f"{base}/{path}"
    if not isinstance(system, LocalFileSystem):
        _write_remote(system, base, whole, content)
        return
    system.makedirs(system._parent(whole), exist_ok=True)
    part = f"{whole}.{uuid4().hex}"
    try:
        system.pipe_file(part, content)
        system.mv(part, whole)
    except BaseException:
        with suppress(Exception):
            system.rm_file(part)
        raise


def _write_remote(system: AbstractFileSystem, base: str, whole: str, content: bytes) -> None:
    try:
        system.pipe_file(whole, content)
    except FileNotFoundError:
        # A file system with folders has the queue's folder now. One without lacks the bucket, which is not made.
        if not system.isdir(base):
            raise
        system.makedirs(system._parent(whole), exist_ok=True)
        system.pipe_file(whole, content)


def read(root: str, path: str) -> bytes | None:
    """The content of an object; None if it is gone."""
    system, base = _file_system(root)
    try:
        content: bytes = system.cat_file(f"{base}/{path}")
    except FileNotFoundError:
        return None
    return content


def delete(root: str, paths: Iterable[str]) -> int:
    """Deletes objects; returns how many were there."""
    system, base = _file_system(root)
    deleted = 0
    for path in paths:
        try:
            system.rm_file(f"{base}/{path}")
            deleted += 1
        except FileNotFoundError:
            pass
    return deleted


def found_in(root: str, folder: str) -> Iterator[Found]:
    """The objects of a folder below the root."""
    system, base = _file_system(root)
    try:
        entries = system.ls(f"{base}/{folder}", detail=True, refresh=True)
    except FileNotFoundError:
        return
    for entry in entries:
        if entry["type"] == "file":
            name = str(entry["name"]).rsplit("/", 1)[-1]
            yield Found(f"{folder}/{name}", _modified_ms(entry))


def check(root: str) -> None:
    """Raises OptionError for a root that fsspec does not know, without showing it: it may hold a password."""
    _file_system(root)


def _file_system(root: str) -> tuple[AbstractFileSystem, str]:
    """The file system of a root, and the root in it."""
    return _opened_in(os.getpid(), root)


@lru_cache(maxsize=16)
def _opened_in(_process: int, root: str) -> tuple[AbstractFileSystem, str]:
    """As `_file_system`: a file system with connections, such as s3fs, does not work in a fork of its process."""
    try:
        system, base = url_to_fs(root)
    except (ImportError, ValueError) as error:
        protocol = root.partition("://")[0] if "://" in root else "file"
        raise OptionError(
            f"expected `offloadTo` to be a path or URL that fsspec knows, got one of {protocol!r}: {error}"
        ) from None
    return system, str(base).rstrip("/")


def _modified_ms(entry: dict[str, Any]) -> int | None:
    for name in ("mtime", "LastModified", "last_modified", "updated", "created"):
        when = entry.get(name)
        if isinstance(when, datetime):
            return int(when.timestamp() * 1000)
        if isinstance(when, (int, float)):
            return int(when * 1000)
    return None
