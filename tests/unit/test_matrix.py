"""The environments of `make matrix` and `make oldest`, on machines that have some versions of Python only."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tools import matrix
from tools.matrix import ENVIRONMENTS, OLDEST, STEPS, TESTED, UNTRIED, NotRun, oldest, row

Has = Callable[..., None]


@pytest.fixture
def has(monkeypatch: pytest.MonkeyPatch) -> Iterator[Has]:
    """Lets the machine have these versions of Python."""

    def has(*versions: str) -> None:
        def find(version: str) -> str:
            if version not in versions:
                raise NotRun(f"no Python {version} on this machine")
            return f"python{version}"

        monkeypatch.setattr(matrix, "find_python", find)
        oldest.cache_clear()

    yield has
    oldest.cache_clear()


def test_the_oldest_pyspark_runs_with_the_oldest_python_that_is_there(has: Has) -> None:
    has("3.10", "3.11", "3.13")
    assert oldest() == OLDEST
    has("3.11", "3.13")
    assert (oldest().pyspark, oldest().python, oldest().pandas) == (OLDEST.pyspark, "3.11", OLDEST.pandas)


def test_without_a_python_that_it_supports_it_does_not_run(has: Has) -> None:
    has("3.9", "3.14")
    with pytest.raises(NotRun, match=r"no Python from 3\.10 to 3\.13 on this machine"):
        oldest()


def test_the_row_of_a_python_that_is_not_there_says_so(has: Has) -> None:
    has("3.11")
    cells = row(UNTRIED).strip("|").split("|")
    assert [cell.strip() for cell in cells[:4]] == ["4.3", "3.14", "", "not run: no Python 3.14 on this machine"]
    assert len(cells) == 3 + len(STEPS)


def test_each_tested_version_has_an_environment() -> None:
    assert set(TESTED) < {one.pyspark for one in ENVIRONMENTS}
