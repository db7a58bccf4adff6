"""Texts that UTF-8 can encode, as JavaScript's `toWellFormed` makes them.

JavaScript cuts texts inside a pair of UTF-16, and its JSON keeps the half as an escape such as `\\ud83c`. Redis keeps
it; what Arrow, Spark or a reader gets has U+FFFD instead.
"""

from __future__ import annotations

import re
from typing import Final

#: The next escape in JSON text: a pair, a half of one, or another one.
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD](?:[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]|[89a-fA-F])[0-9a-fA-F]{2}|.)", re.DOTALL
)
_HALF: Final = len(r"\ud83c")


def well_formed(text: str) -> str:
    """Returns the text with U+FFFD for each unpaired surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def well_formed_json(text: str) -> str:
    """Returns JSON text, which UTF-8 can encode, with U+FFFD for each escape of an unpaired surrogate."""
    if r"\ud" not in text and r"\uD" not in text:
        return text
    return _ESCAPE.sub(lambda found: r"\ufffd" if len(found[0]) == _HALF else found[0], text)
