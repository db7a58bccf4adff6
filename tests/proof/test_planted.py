"""The errors that `make mutants` plants."""

from __future__ import annotations

import ast

from tests.proof.planted.errors import ERRORS, OF_HISTORIES, PACKAGE


def test_the_text_of_each_error_stands_in_its_file_once() -> None:
    errors = ERRORS + OF_HISTORIES
    texts = {one.file: (PACKAGE / one.file).read_text("utf-8") for one in errors}
    assert [one.error for one in errors if one.planted(texts[one.file]) == texts[one.file]] == []
    assert len({one.error for one in errors}) == len(errors)


def test_the_test_that_finds_an_error_exists() -> None:
    assert [one.error for one in ERRORS if not one.finder] == []
    finders = {one.finder for one in ERRORS}
    files = {one.partition("::")[0] for one in finders}
    found = {file: ast.parse((PACKAGE.parent / file).read_text("utf-8")).body for file in files}
    tests = {f"{file}::{one.name}" for file, body in found.items() for one in body if isinstance(one, ast.FunctionDef)}
    assert [*finders - tests] == []
