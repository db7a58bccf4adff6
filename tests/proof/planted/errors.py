"""The planted errors: errors.txt lists those that a test finds, histories.txt those that histories show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[3] / "spark_bull"


@dataclass(frozen=True)
class Planted:
    """error: what is wrong. file: below spark_bull/. text: stands in it once; instead: the error.

    finder: a test, or histories and the seed of the first one that shows the error.
    """

    error: str
    file: str
    text: str
    instead: str
    finder: str

    def __str__(self) -> str:
        return self.error

    @property
    def room(self) -> str:
        """The first folder of the file; for a script, its dialect."""
        if self.file.startswith("core/lua/bull/bull1/"):
            return "lua, Bull 1"
        for folder, dialect in (
            ("core/lua/bull/", "Bull"),
            ("core/lua/bullmq/", "BullMQ"),
            ("core/lua/", "all dialects"),
        ):
            if self.file.startswith(folder):
                return f"lua, {dialect}"
        return self.file.partition("/")[0].removesuffix(".py")

    def planted(self, whole: str) -> str:
        assert whole.count(self.text) == 1, f"expected {self.text!r} once in {self.file}, for `{self.error}`"
        return whole.replace(self.text, self.instead)


def _errors_of(file: str) -> list[Planted]:
    paragraphs = Path(__file__).with_name(file).read_text("utf-8").strip().split("\n\n")
    return [_error(one) for one in paragraphs[1:] if not one.startswith("# ")]


def _error(paragraph: str) -> Planted:
    error, file, *lines = paragraph.splitlines()
    parts = ("\n".join(line[2:] for line in lines if line.startswith(f"{sign} ")) for sign in "-+=")
    return Planted(error, file, *parts)


ERRORS: Final = _errors_of("errors.txt")
OF_HISTORIES: Final = _errors_of("histories.txt")
