"""Code blocks of a Markdown page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of a page: the page's name, the block's language and text, and the line where it begins."""

    page: str
    language: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.language} at line {self.line} of {self.page}"


def blocks(page: Path, root: Path) -> list[Block]:
    """The fenced blocks of a Markdown page; the name of the page is its path relative to `root`."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(root).as_posix()
    return [Block(name, found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in _BLOCK.finditer(text)]
