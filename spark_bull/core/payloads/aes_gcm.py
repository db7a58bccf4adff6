"""AES-256-GCM. Needs the package cryptography."""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def encrypt(key: bytes, nonce: bytes, content: bytes, bound: bytes) -> bytes:
    """The ciphertext, and the tag behind it."""
    return _cipher(key).encrypt(nonce, content, bound)


def decrypt(key: bytes, nonce: bytes, sealed: bytes, bound: bytes) -> bytes | None:
    """The content; None if key, nonce, ciphertext or associated data are other ones."""
    try:
        return _cipher(key).decrypt(nonce, sealed, bound)
    except (InvalidTag, ValueError):
        return None


@lru_cache(maxsize=16)
def _cipher(key: bytes) -> AESGCM:
    return AESGCM(key)
