"""The text format of Prometheus, as BullMQ writes it: labels separated by `, `, whole numbers without a fraction.

The client library of Prometheus writes the same values in another form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from spark_bull.ops.prometheus.families import FAMILIES, Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def as_text(samples: Iterable[Sample], labels: Mapping[str, str] | None = None) -> str:
    """The samples, ordered by metric, without a final newline. labels: further ones of all samples."""
    by_family: dict[str, list[str]] = {family.name: [] for family in FAMILIES}
    for sample in samples:
        by_family[sample.family.name].append(_line(sample, labels or {}))
    lines = []
    for family in FAMILIES:
        if by_family[family.name]:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            lines += by_family[family.name]
    return "\n".join(lines)


def _line(sample: Sample, labels: Mapping[str, str]) -> str:
    named = {**sample.labels, **labels}
    texts = ", ".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in named.items())
    return f"{sample.family.name}{{{texts}}} {sample.value}"
