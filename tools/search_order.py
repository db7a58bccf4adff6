"""A hook of MkDocs: the search of the site finds guides before pages of classes."""

from __future__ import annotations

from typing import Any, Final

#: Weights of pages, by the beginnings of their paths; others have 1.
WEIGHTS: Final = {"troubleshooting": 12, "howto/": 4, "concepts/": 2, "reference/api/": 0.005, "develop/": 0.005}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Weighs a page by its path."""
    for beginning, weight in WEIGHTS.items():
        if page.file.src_uri.startswith(beginning):
            page.meta.setdefault("search", {"boost": weight})
