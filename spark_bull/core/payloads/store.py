"""Stores texts outside of Redis, which has an object in their place:
{"$stored":{"v":1,"path":"bull/mail/<name>","size":70000,"sha256":"…"}}.

`path` is below the folder of the option `offloadTo`: the folder of the queue, and a name that no other job has.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import quote

from spark_bull.core.errors import PayloadNotStored, SparkBullError
from spark_bull.core.payloads.seal import VERSION, NotOpened, objects, parts_of

T = TypeVar("T")

STORED: Final = "$stored"
#: Pauses before the further tries to read or write an object, s.
PAUSES_S: Final = (0.1, 0.4)
_NAME: Final = re.compile("[0-9a-f]{64}")
#: What encodeURIComponent of JavaScript leaves as it is, and quote does not.
_SAFE: Final = "!*'()"


def folder_of(prefix: str, queue: str) -> str:
    """The folder of the objects of a queue, below `offloadTo`."""
    return "/".join(_segment(name) for name in (prefix, queue))


def _segment(name: str) -> str:
    """A name as one segment of a path, which is neither `.` nor `..`."""
    quoted = quote(name, safe=_SAFE)
    return quoted.replace(".", "%2E") if set(quoted) <= {"."} else quoted


def store(text: str, root: str, folder: str, source: str) -> str:
    """Stores a text. source: names the job whose text it is; the same text of the same source is the same object.

    Raises PayloadNotStored.
    """
    content = text.encode()
    named = hashlib.sha256(source.encode()).digest() + content
    path = f"{folder}/{hashlib.sha256(named).hexdigest()}"
    try:
        _patiently(lambda: objects().write(root, path, content))
    except SparkBullError:  # Also JobTimeout and JobCancelled, which interrupt it.
        raise
    except Exception as error:  # A file system raises anything, also with secrets in the message.
        raise PayloadNotStored(
            f"expected `offloadTo` to take the object {path}, got {type(error).__name__}: see to its folder or bucket, "
            "the credentials and the network"
        ) from None
    size, digest = len(content), hashlib.sha256(content).hexdigest()
    return f'{{"{STORED}":{{"v":{VERSION},"path":"{path}","size":{size},"sha256":"{digest}"}}}}'


def fetch(text: str, root: str, folder: str) -> str:
    """The text that is stored. Raises NotOpened."""
    path = path_of(text, folder)
    try:
        content: bytes | None = _patiently(lambda: objects().read(root, path))
    except SparkBullError:  # Also JobTimeout and JobCancelled, which interrupt the read.
        raise
    except Exception as error:
        raise NotOpened(
            f"be the object {path}, which could not be read from `offloadTo`: {type(error).__name__}", may_pass=True
        ) from None
    if content is None:
        raise NotOpened(f"be the object {path} in `offloadTo`, which is gone or was never there")
    wanted = parts_of(text, STORED).get("sha256")
    if hashlib.sha256(content).hexdigest() != wanted:
        raise NotOpened(f"be the object {path} in `offloadTo` with the SHA-256 {wanted}, got another content")
    return content.decode()


def _patiently(step: Callable[[], T]) -> T:
    """Takes a step again after each of PAUSES_S, as an error of a file system may be a momentary one."""
    for pause_s in PAUSES_S:
        try:
            return step()
        except SparkBullError:
            raise
        except Exception:  # A file system raises anything.
            time.sleep(pause_s)
    return step()


def path_of(text: str, folder: str) -> str:
    """The path of a stored text. Raises NotOpened for one outside of the folder."""
    path = parts_of(text, STORED).get("path")
    start, _, name = path.rpartition("/") if isinstance(path, str) else ("", "", "")
    if start != folder or not _NAME.fullmatch(name):
        raise NotOpened(f"be an object in the folder {folder}/ of `offloadTo`, got path {path!r}")
    return str(path)
