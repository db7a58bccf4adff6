"""All verbs and both engines work with the oldest PySpark and with the newest; `make matrix` runs more versions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import need
from tools.matrix import OLDEST, STEPS, run_program


@pytest.mark.slow
@pytest.mark.parametrize("python", [OLDEST.interpreter, Path(sys.executable)], ids=["oldest", "newest"])
def test_all_verbs_work(python: Path) -> None:
    need(python == Path(sys.executable) or OLDEST.is_made, f"no {OLDEST.folder.name}: run `make oldest`")
    steps, output = run_program(python)
    assert steps == set(STEPS), output
