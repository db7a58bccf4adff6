"""How the payloads and results of queues are kept: as they are, sealed, or outside of Redis. Opens all of these."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Final, Literal

from spark_bull.core.errors import OptionError, PayloadUnreadable, encodable
from spark_bull.core.keys import QueueKeys, whole_queue
from spark_bull.core.options.table import Encrypted, Offloading, Options, Storing
from spark_bull.core.options.values import KeySource
from spark_bull.core.payloads.seal import SEALED, NotOpened, aes_gcm, key_of, objects, seal, unseal
from spark_bull.core.payloads.store import STORED, fetch, folder_of, path_of, store

if TYPE_CHECKING:
    from spark_bull.core.payloads.objects import Found

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
