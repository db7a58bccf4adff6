"""The errors that `make mutants` plants."""

from __future__ import annotations

from tests.proof.planted.errors import ERRORS, PACKAGE


def test_the_text_of_each_error_stands_in_its_file_once() -> None:
    texts = {one.file: (PACKAGE / one.file).read_text("utf-8") for one in ERRORS}
    assert [one.error for one in ERRORS if one.planted(texts[one.file]) == texts[one.file]] == []
    assert len({one.error for one in ERRORS}) == len(ERRORS)
