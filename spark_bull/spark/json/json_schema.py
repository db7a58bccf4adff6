"""The types of columns whose JSON text is read as values: options `payloadSchema` and `returnSchema`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spark_bull.core.well_formed import well_formed

#: Columns of jobs that can be read as values, and the options with their types.
TYPED_COLUMNS: Final[Mapping[str, str]] = {"data": "payloadSchema", "returnvalue": "returnSchema"}
#: Value of the options: infer the type from a sample of jobs.
INFER: Final = "infer"


def is_inferred(text: str | None) -> bool:
    """Whether the value of an option asks for the type of the jobs in a sample."""
    return text is not None and text.strip().lower() == INFER


@dataclass
class _Seen:
    """What values were seen in one place. JSON has no other types."""

    names: set[str] = field(default_factory=set)
    fields: dict[str, _Seen] = field(default_factory=dict)
    items: _Seen | None = None

    def add(self, value: Any) -> None:
        if isinstance(value, dict):
            self.names.add("STRUCT")
            for name, member in value.items():
                self.fields.setdefault(well_formed(name), _Seen()).add(member)
        elif isinstance(value, list):
            self.names.add("ARRAY")
            self.items = self.items or _Seen()
            for item in value:
                self.items.add(item)
        elif isinstance(value, bool):
            self.names.add("BOOLEAN")
        elif isinstance(value, int):
            self.names.add("BIGINT" if -(2**63) <= value < 2**63 else "DOUBLE")
        elif isinstance(value, float):
            self.names.add("DOUBLE")
        elif value is not None:
            self.names.add("STRING")

    def ddl(self) -> str:
        if self.names == {"STRUCT"} and self.fields:
            members = (f"`{name.replace('`', '``')}`: {seen.ddl()}" for name, seen in self.fields.items())
            return f"STRUCT<{', '.join(members)}>"
        if self.names == {"ARRAY"} and self.items is not None:
            return f"ARRAY<{self.items.ddl()}>"
        if self.names == {"BIGINT", "DOUBLE"}:
            return "DOUBLE"
        return self.names.pop() if len(self.names) == 1 and self.names <= {"BOOLEAN", "BIGINT", "DOUBLE"} else "STRING"


def inferred(texts: Iterable[str | bytes]) -> str | None:
    """Returns the type of JSON values in SQL: numbers are BIGINT or DOUBLE; values of several types are STRING.

    Texts that are not JSON are left out; None if there is no other.
    """
    seen = _Seen()
    found = False
    for text in texts:
        try:
            seen.add(json.loads(text))
        except ValueError:
            continue
        found = True
    return seen.ddl() if found else None
