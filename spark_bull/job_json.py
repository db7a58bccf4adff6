"""The JSON texts in a job's hash, parsed; and what is said of those that are no JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from spark_bull.errors import JobDamaged

#: How much of a damaged field a message shows, in characters.
_SHOWN: Final = 200


def damaged_field(name: str, job_id: str, what: str, got: str | None) -> str:
    """What is wrong with a field of a job's hash; None and an empty text are nothing."""
    return f"expected `{name}` of job {job_id} to be {what}, got: {repr(got[:_SHOWN]) if got else 'nothing'}"


def payload_of(job_id: str, data: str, opts: str = "{}") -> Any:
    """A job's payload, parsed; as it stands if its options say so (Bull's `preventParsingData`). Raises JobDamaged."""
    if "preventParsingData" in opts and (parsed_opts(opts) or {}).get("preventParsingData") is True:
        return data
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise JobDamaged(damaged_field("data", job_id, f"JSON ({error})", data)) from None


def opts_of(job_id: str, opts: str) -> dict[str, Any]:
    """A job's options as the Node library stores them. Raises JobDamaged."""
    parsed = parsed_opts(opts)
    if parsed is None:
        raise JobDamaged(damaged_field("opts", job_id, "a JSON object", opts))
    return dict(parsed)


@lru_cache(maxsize=4096)
def parsed_opts(opts: str) -> Mapping[str, Any] | None:
    """A job's options; None when they are no JSON object. An empty text is an empty object, as in Node."""
    try:
        parsed = _JSON.decode(opts or "{}")
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def json_or_text(text: str | None) -> Any:
    """The value that a text stands for, or the text when it is no JSON; None for none."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


#: NaN and Infinity are no JSON, though Python reads them.
_JSON: Final = json.JSONDecoder(parse_constant=_refused)
