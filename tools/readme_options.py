"""Writes the README's option tables anew from the table in spark_bull/options.py."""

from __future__ import annotations

import re
from pathlib import Path

from spark_bull.options import markdown_table

README = Path(__file__).parent.parent / "README.md"
_BLOCK = re.compile(r"(<!-- options: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """The text with each options block filled."""
    return _BLOCK.sub(lambda m: f"{m[1]}{markdown_table(m[2])}\n{m[3]}", text)


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
