"""The option `encryptWith`: where keys of payloads are. The keys themselves are in no option."""

from __future__ import annotations

import json
import re
from typing import Final, Literal, NamedTuple

from spark_bull.core.errors import OptionError

_SOURCE: Final = re.compile(r"([A-Za-z0-9_.-]{1,64})=(env|file):(\S+)")


class KeySource(NamedTuple):
    """kid: id of the key, which sealed payloads name. where: name of an environment variable, or path of a file."""

    kid: str
    kind: Literal["env", "file"]
    where: str


def key_sources(name: str, value: str) -> tuple[KeySource, ...]:
    """Parses `a=env:NAME,b=file:/path`, also as a JSON list of texts. Raises OptionError, which shows no value: it may
    be a key.
    """
    sources = []
    for part in _sources_in(value):
        found = _SOURCE.fullmatch(part)
        if found is None:
            raise OptionError(
                f"expected `{name}` to list ids of keys and where they are, such as 'b=file:/run/secrets/mail' or "
                "'b=file:/run/secrets/mail,a=env:MAIL_SECRET', got something else, which is not shown; a key itself is "
                "no option"
            )
        sources.append(KeySource(found[1], "env" if found[2] == "env" else "file", found[3]))
    kids = [source.kid for source in sources]
    if not kids or len(set(kids)) < len(kids):
        raise OptionError(f"expected `{name}` to list keys with different ids, got: {', '.join(kids) or 'none'}")
    return tuple(sources)


def _sources_in(value: str) -> list[str]:
    try:
        given = json.loads(value)
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, list):
        return [str(part) for part in given]
    return re.split(r"[,\s]+", value.strip()) if value.strip() else []
