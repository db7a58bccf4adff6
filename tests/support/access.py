"""The rights of docs/access.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

USER: Final = "spark"
PASSWORD: Final = "secret"
#: Rights that are needed beside those of verbs.
_PLACES: Final = frozenset({"cluster", "sentinel"})
_PAGE: Final = Path(__file__).parents[2] / "docs" / "access.md"


def rules(*verbs: str, prefix: str = "test-*", queue: str = "test-p:q", place: str = "") -> str:
    """The rights of these verbs in docs/access.md, by default of all verbs, as ACL rules. queue: prefix and name of the
    queue of Bull 3 or 4 whose events can be read. place: cluster, or none."""
    rows = re.findall(r"^- ([a-z]+): `([^`]+)`$", _PAGE.read_text(), re.MULTILINE)
    wanted = {place, *(verbs or {verb for verb, _ in rows} - _PLACES)}
    allowed = {command for verb, commands in rows if verb in wanted for command in commands.split()}
    (channels,) = re.findall(r"`(&waiting@[^`]+)`", _PAGE.read_text())
    (patterns,) = re.findall(r"`(&bull:mail:[^`]+)`", _PAGE.read_text())
    channels += " " + patterns.replace("bull:mail", queue)
    return f"~{prefix} resetchannels &{prefix} {channels} {' '.join(sorted(allowed))}"
