"""A hook of MkDocs: the search of the site finds guides before pages of classes."""

from __future__ import annotations

from typing import Any, Final

#: Weights of the pages of a folder; others have 1.
WEIGHTS: Final = {"howto": 4, "concepts": 2, "reference/api": 0.2, "develop": 0.2}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    """Weighs a page by its folder."""
    for folder, weight in WEIGHTS.items():
        if page.file.src_uri.startswith(f"{folder}/"):
            page.meta.setdefault("search", {"boost": weight})
