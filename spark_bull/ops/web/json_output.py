"""JSON responses with values from Redis, which need not be valid: any text becomes a valid document."""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import JSONResponse


class Json(JSONResponse):
    """A response in ASCII: unpaired surrogates, which UTF-8 has no form for, stay escaped."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
