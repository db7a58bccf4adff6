"""Payloads and other texts of jobs, as the page shows them: readable, and cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from spark_bull.core.model.job_json import json_or_text

#: Maximum characters of a text on the page of a job, and in a list of jobs.
SHOWN: Final = 4_000
PREVIEW: Final = 200
#: Longer JSON is not laid out: it would take long.
_LAID_OUT: Final = 1_000_000


class Cut(NamedTuple):
    """The beginning of a text. `total`: length of the whole; `left`: characters that are not shown."""

    shown: str
    total: int
    left: int


def cut(text: str | None, most: int = SHOWN) -> Cut:
    whole = text or ""
    return Cut(whole[:most], len(whole), max(0, len(whole) - most))


def laid_out(text: str | None) -> str:
    """JSON with a line per value; another text as it is. None is ""."""
    if text is None or len(text) > _LAID_OUT:
        return text or ""
    value = json_or_text(text)
    return value if isinstance(value, str) and value == text else json.dumps(value, indent=2, ensure_ascii=False)


def traces(stacktrace: Sequence[str]) -> str:
    """Stack traces, the last one first."""
    return "\n\n".join(reversed(stacktrace))


def preview(text: str) -> str:
    """The beginning of a text, for a list."""
    return text[:PREVIEW] + ("…" if len(text) > PREVIEW else "")
