"""What processes under a fault note in one file: a line of JSON each, which a kill leaves out or leaves whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any, Literal, NamedTuple

#: begun, acked: a promise's version of the driver. start: a job of a worker. result: an entry of the reader.
What = Literal["begun", "acked", "start", "result"]


class Note(NamedTuple):
    """name: promise or queue. number: version, or position of a result. at: time of the machine, ns."""

    what: What
    name: str
    number: int = 0
    job_id: str = ""
    row: str = ""
    at: int = 0


class Notes:
    """The file. Picklable."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, what: What, name: str, **more: Any) -> None:
        line = json.dumps(Note(what, name, **more, at=monotonic_ns())) + "\n"
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def all(self) -> list[Note]:
        if not self.path.exists():
            return []
        return [Note(*json.loads(line)) for line in self.path.read_text().splitlines()]

    def of(self, what: What) -> Iterator[Note]:
        return (note for note in self.all() if note.what == what)
