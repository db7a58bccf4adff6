"""Guides are short, and so are the sentences of all pages for users, and of the texts in the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

import pytest

from tests.support.examples import BLOCK, ROOT

DOCS = ROOT / "docs"
GUIDES = [*DOCS.glob("*.md"), *DOCS.glob("howto/*.md"), *DOCS.glob("platforms/*.md")]
CONCEPTS = [*DOCS.glob("concepts/*.md")]
#: All pages but those for maintainers.
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]
PAGES += [page for page in DOCS.rglob("*.md") if page.parent.name != "develop"]
#: All modules but a table of commands, and templates of the page.
SOURCES = [one for one in (ROOT / "spark_bull").rglob("*.py") if one.name != "verb_commands.py"]
TEMPLATES = [*(ROOT / "spark_bull").rglob("*.html")]
MOST_WORDS = 1500
MOST_WORDS_OF_A_SENTENCE = 30
#: Words that are read twice.
UNCLEAR = r"\b(those of|that of|so many|whoever)\b"


def test_guides_and_concepts_have_few_words_beside_their_code() -> None:
    """The tables of concepts do not count."""
    texts = {page: without_code(page) for page in GUIDES}
    texts |= {page: re.sub(r"^\|.*$", "", without_code(page), flags=re.MULTILINE) for page in CONCEPTS}
    words = {page: len(text.split()) for page, text in texts.items()}
    assert {page: number for page, number in words.items() if number > MOST_WORDS} == {}


def test_sentences_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of code count as one."""
    assert {page.name: long for page in PAGES if (long := [one for one in sentences(page) if is_long(one)])} == {}
    monkeypatch.setattr("tests.unit.test_docs_words.MOST_WORDS_OF_A_SENTENCE", 5)
    assert any(is_long(one) for page in PAGES for one in sentences(page)), "sentences are found"


def test_no_word_stands_for_another_one() -> None:
    unclear = {page.name: re.findall(UNCLEAR, " ".join(without_code(page).split())) for page in PAGES}
    assert {page: words for page, words in unclear.items() if words} == {}


def test_errors_logs_helps_and_docstrings_are_short_and_clear() -> None:
    """A value in a text counts as one word."""
    found = [(source.name, text) for source in SOURCES for text in texts(source)]
    found += [(page.name, shown(page)) for page in TEMPLATES]
    long = [(name, one) for name, text in found if is_long(text) for one in parts(text) if is_long(one)]
    assert long + [(name, text) for name, text in found if re.search(UNCLEAR, text)] == []


def is_long(sentence: str) -> bool:
    return len(sentence.split()) > MOST_WORDS_OF_A_SENTENCE


def without_code(page: Path) -> str:
    """The text of a page without its blocks of code, indented or fenced, and its comments."""
    text = re.sub(r"^ {4}\S.*$", "", BLOCK.sub("\n\n", page.read_text("utf-8")), flags=re.MULTILINE)
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def texts(source: Path) -> Iterator[str]:
    """The texts of a module but SQL, with `…` for values, and its docstrings without code, each item a paragraph."""
    nodes = [*ast.walk(ast.parse(source.read_text("utf-8")))]
    parts_of_texts = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts_of_texts:
            text = re.sub(r"(?<=\n\n)(?: {4}.*\n?)+", "", cleandoc(node.value)) if node in docstrings else node.value
            item = r"^(?: *\w+:$|(?= *[\w*]+(?:, [\w*]+)*: |[ │]*[├└]))"
            yield "" if "SELECT " in text else re.sub(item, "\n\n", text, flags=re.MULTILINE)


def shown(template: Path) -> str:
    """What a template shows, each element and each text in its code a paragraph."""
    return re.sub(r"{%.*?%}|{#.*?#}|<.*?>|\"", "\n\n", template.read_text("utf-8"), flags=re.DOTALL)


def sentences(page: Path) -> Iterator[str]:
    """The sentences of a page, its headings, and the items of cells of its tables, which semicolons divide."""
    yield from parts(without_code(page))


def parts(text: str) -> Iterator[str]:
    text = re.sub(r"(`+) ?(.+?) ?\1", "code", text)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^ *(?:[-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|^(?=[#|])", text, flags=re.MULTILINE):
        cells = paragraph.split("|") if paragraph.startswith("|") else [paragraph]
        ends = r"(?<=[.!?])[*)]*\s|;\s" if len(cells) > 1 else r"(?<=[.!?])[*)]*\s"
        yield from (one.strip() for cell in cells for one in re.split(ends, cell) if re.search(r"\w", one))
