"""Servers that let the product do less: a user with the least rights, a cluster of one node."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

USER: Final = "spark"
PASSWORD: Final = "secret"
_PAGE: Final = Path(__file__).parents[2] / "docs" / "access.md"


def rules(*verbs: str, prefix: str = "test-*") -> str:
    """What docs/access.md allows for these verbs (all, when there are none), as Redis writes it."""
    rows = re.findall(r"^- ([a-z]+): `([^`]+)`$", _PAGE.read_text(), re.MULTILINE)
    allowed = {command for verb, commands in rows if not verbs or verb in verbs for command in commands.split()}
    (channels,) = re.findall(r"`(&waiting@[^`]+)`", _PAGE.read_text())
    return f"~{prefix} resetchannels &{prefix} {channels} {' '.join(sorted(allowed))}"


#: Kind of server -> its configuration.
RESTRICTED: Final[dict[str, Callable[[], dict[str, str]]]] = {
    "acl": lambda: {"user": f"{USER} on >{PASSWORD} {rules()}"},
    "cluster": lambda: {"cluster-enabled": "yes"},
}
