"""How the payloads and results of queues are kept: as they are, sealed, or outside of Redis. Opens all of these.

A text outside of Redis has an object in its place:
{"$stored":{"v":1,"path":"bull/mail/<name>","size":70000,"sha256":"…"}}.
`path` is below the folder of the option `offloadTo`: the folder of the queue, and a name that no other job has.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Final, Literal, TypeVar
from urllib.parse import quote

from spark_bull.core.errors import OptionError, PayloadNotStored, PayloadUnreadable, SparkBullError, encodable
from spark_bull.core.keys import QueueKeys, whole_queue
from spark_bull.core.options.parts import Encrypted, Offloading, Options, Storing
from spark_bull.core.options.values import KeySource
from spark_bull.core.payloads.seal import SEALED, VERSION, NotOpened, aes_gcm, key_of, objects, parts_of, seal, unseal

if TYPE_CHECKING:
    from spark_bull.core.payloads.objects import Found


T = TypeVar("T")

STORED: Final = "$stored"
#: Pauses before the further tries to read or write an object, s.
PAUSES_S: Final = (0.1, 0.4)
_NAME: Final = re.compile("[0-9a-f]{64}")
#: What encodeURIComponent of JavaScript leaves as it is, and quote does not.
_SAFE: Final = "!*'()"


def folder_of(prefix: str, queue: str) -> str:
    """The folder of the objects of a queue, below `offloadTo`."""
    quoted = [quote(name, safe=_SAFE) for name in (prefix, queue)]
    # No segment of a path is `.` or `..`.
    return "/".join(name.replace(".", "%2E") if set(name) <= {"."} else name for name in quoted)


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


#: What a text is.
Kind = Literal["data", "returnvalue"]
#: The beginning of each sealed or stored text.
MARK: Final = '{"$s'
_SEALED_MARK: Final = f'{{"{SEALED}"'
_STORED_MARK: Final = f'{{"{STORED}"'


@dataclass(frozen=True)
class PayloadPolicy:
    """Picklable, and without keys: each process reads these.

    keys: the first one seals, all of them open; none: nothing is sealed or opened. root: where large texts are stored;
    None: stored ones are not opened. above: texts of more bytes are stored; None: none are.
    """

    keys: tuple[KeySource, ...] = ()
    root: str | None = field(default=None, repr=False)
    above: int | None = None

    @cached_property
    def is_plain(self) -> bool:
        """Whether texts are kept, and shown, as they are."""
        return not self.keys and self.root is None

    def check(self) -> None:
        """Raises OptionError for a key that cannot be read, a root that is unknown, and packages that are missing."""
        for source in self.keys:
            key_of(source)
        if self.keys:
            aes_gcm()
        if self.root is not None:
            objects().check(self.root)

    def hash_key(self, purpose: str) -> bytes:
        """The key of hashes of texts that Redis shows, so that these tell nothing; empty if texts are not sealed."""
        return hmac.digest(key_of(self.keys[0]), purpose.encode(), "sha256") if self.keys else b""

    def passes(self, payloads: Iterable[str]) -> bool:
        """Whether Redis may have payloads as they are: one that is the place of an object belongs to another job."""
        return self.is_plain and not any(map(str.startswith, payloads, repeat(_STORED_MARK)))

    def sealed(self, keys: QueueKeys, kind: Kind, text: str, source: str | None) -> str:
        """What Redis has of a text: the text itself, a sealed one, or the place of an object.

        source: names the job, as no other one is named; None: the text stays in Redis. Raises OptionError, also for the
        payload of another job as it is kept, and PayloadNotStored.
        """
        if not text or self.passes((text,) if kind == "data" else ()):
            return text
        encodable(kind, text)
        if self.keys:
            first = self.keys[0]
            text = seal(text, first.kid, key_of(first), _bound(keys, kind), source)
        elif text.startswith((_SEALED_MARK, _STORED_MARK)):
            raise OptionError(
                f"expected `{kind}` without a member `{SEALED}` or `{STORED}`, which mark the payload of another job: "
                "read that with `encrypt_with` and `offload_to`, and use what is shown then"
            )
        if self.above is None or self.root is None or source is None or len(text.encode()) <= self.above:
            return text
        return store(text, self.root, _folder(keys), source)

    def opened(self, keys: QueueKeys, kind: Kind, job_id: str, text: str) -> str:
        """The text that is kept, as far as it can be opened: without a key, or a root, what is there.

        Raises PayloadUnreadable.
        """
        if not text.startswith(MARK) or self.is_plain:
            return text
        try:
            if self.root is not None and text.startswith(_STORED_MARK):
                text = fetch(text, self.root, _folder(keys))
            if self.keys and text.startswith(_SEALED_MARK):
                text = unseal(text, {source.kid: key_of(source) for source in self.keys}, _bound(keys, kind))
        except NotOpened as error:
            message = f"expected `{kind}` of job {job_id} of queue {keys.queue} to {error}"
            raise PayloadUnreadable(message, may_pass=error.may_pass) from None
        return text

    def delete(self, paths: Iterable[str]) -> int:
        """Deletes objects of removed jobs; returns how many were there."""
        return 0 if self.root is None else int(objects().delete(self.root, paths))

    def found(self, keys: QueueKeys) -> list[Found]:
        """The objects of a queue, and of all its shards."""
        return [] if self.root is None else list(objects().found_in(self.root, _folder(keys)))

    def paths(self, keys: QueueKeys, texts: Iterable[str | bytes | None]) -> set[str]:
        """The paths of the objects of a queue among kept texts."""
        decoded = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts]
        return {path for text in decoded if text and (path := _path_in(text, _folder(keys))) is not None}

    def paths_within(self, keys: QueueKeys, chunk: bytes) -> set[str]:
        """The paths of the objects of a queue that a packed chunk names anywhere."""
        return {path.decode() for path in re.findall(re.escape(_folder(keys)).encode() + b"/[0-9a-f]{64}", chunk)}


#: Payloads are kept, and shown, as they are.
PLAIN: Final = PayloadPolicy()


def policy_of(options: Options) -> PayloadPolicy:
    """The policy of options. Raises OptionError."""
    keys = options.encrypt_with if isinstance(options, Encrypted) else None
    root = options.offload_to if isinstance(options, Offloading) else None
    policy = PayloadPolicy(keys or (), root, options.offload_above if isinstance(options, Storing) else None)
    policy.check()
    return policy


def _folder(keys: QueueKeys) -> str:
    return folder_of(keys.prefix, whole_queue(keys.queue))


def _bound(keys: QueueKeys, kind: Kind) -> bytes:
    """What a sealed text is bound to. All shards of a queue are one: jobs move between them."""
    return f"spark_bull:{kind}:{keys.prefix}:{whole_queue(keys.queue)}".encode()


def _path_in(text: str, folder: str) -> str | None:
    if not text.startswith(_STORED_MARK):
        return None
    try:
        return path_of(text, folder)
    except NotOpened:
        return None
