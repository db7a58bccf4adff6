"""Input that nobody should give, for the entrances of the package, and how many cases of it are tried."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

#: How many cases a test tries; `make soak` tries ten thousand at all entrances together.
each_number = pytest.mark.parametrize("cases", [12, pytest.param(2_000, marks=pytest.mark.soak)])

#: Texts that programs are likely to get wrong.
ODD_TEXTS: Final = (
    *("", " ", "0", "-1", "1e400", "NaN", "null", "true", "[]", "{}", "{", '{"a":', '"', "\0", "\r\n", "*", "{tag}"),
    *(":", "a:b:c", "..", "%s", "\ud800", "é" * 300, "9" * 400, "[" * 2_000),
)


def tried(cases: int) -> settings:
    """The settings of a test with this number of cases: the same cases at each run, without limits of time."""
    return settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=cases < 1_000,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
    )


def texts() -> SearchStrategy[str]:
    """Any text, also with unpaired surrogates, which UTF-8 can't encode."""
    return st.sampled_from(ODD_TEXTS) | st.text(st.characters(), max_size=30)


def values() -> SearchStrategy[Any]:
    """What a program may pass where it should pass something else."""
    plain = st.none() | st.booleans() | st.integers() | st.floats() | texts() | st.binary(max_size=20)
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3), max_leaves=6
    )
