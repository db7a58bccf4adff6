"""The page that asks for a token."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from spark_bull.web.page.rendering import render
from spark_bull.web.page.route import PageRoute

router: Final = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/login")
def ask_for_token(request: Request, wrong: bool = False) -> Response:
    """The form of a session. `wrong`: whether the last token was."""
    return render(request, "login.html", wrong=wrong)
