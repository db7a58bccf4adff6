"""The functions of a worker as a program, by their names."""

from __future__ import annotations

import re

import pytest

from spark_bull.errors import OptionError
from spark_bull.process.program import Functions


@pytest.mark.parametrize(
    ("functions", "said"),
    [
        (Functions("nowhere:f"), "expected --processor to be importable, got 'nowhere:f': No module named 'nowhere'"),
        (Functions("json:f"), "expected --processor to be importable, got 'json:f': module 'json' has no attribute"),
        (Functions("f"), "expected --processor MODULE:NAME, got: 'f'"),
        (Functions("json:loads", "nowhere:f"), "expected --setup to be importable, got 'nowhere:f'"),
    ],
)
def test_a_function_that_cannot_be_imported_is_refused(functions: Functions, said: str) -> None:
    with pytest.raises(OptionError, match=re.escape(said)):
        functions.imported()
