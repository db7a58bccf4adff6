"""Times of ISO 8601, which all versions of Python read alike."""

from __future__ import annotations

import pytest

from spark_bull.core.clock import moment_of, ms_of


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2025-01-01", 0),
        ("2025-01-01T00:00:00", 0),
        ("2025-01-01T00:00:00.5Z", 500),
        ("2025-01-01 00:00:00.123456789", 123),
        ("2025-01-01T00:00:01.25+00:00", 1_250),
        ("2025-01-01T05:30:00.5+0530", 500),
        ("2024-12-31T19:00:00-05:00", 0),
    ],
)
def test_times_are_read_alike_by_all_versions_of_python(text: str, ms: int) -> None:
    assert ms_of(moment_of(text)) - 1_735_689_600_000 == ms


@pytest.mark.parametrize("text", ["", "soon", "2025-13-01", "2025-01-01T25:00:00Z", "2025-01-01T00:00:00+99:99"])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        moment_of(text)
