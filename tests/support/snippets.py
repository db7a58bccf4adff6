"""Code blocks of a Markdown page."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: The one form of a block: three backticks and a language, from the start of the line.
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


def loose_code(text: str) -> list[str]:
    """The first lines of code in another form than that of a block: other fences, and indented lines."""
    rest = _BLOCK.sub("\n", text)
    return re.findall(r"^[ \t]*(?:```|~~~).*$", rest, re.MULTILINE) + re.findall(
        r"(?<=\n\n)(?: {4}|\t)\S.*$", rest, re.MULTILINE
    )


def calls(text: str) -> list[ast.Call]:
    """The calls of Python in the text of a page, outside its blocks; … stands for any argument."""
    found = []
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", _BLOCK.sub("", text)):
        with suppress(SyntaxError):
            parsed = ast.parse(code.replace("…", "..."))
            found += [node for node in ast.walk(parsed) if isinstance(node, ast.Call)]
    return found


def blocks(page: Path, root: Path) -> list[Block]:
    """The fenced blocks of a Markdown page; the name of the page is its path relative to `root`."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(root).as_posix()
    return [Block(name, found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in _BLOCK.finditer(text)]
