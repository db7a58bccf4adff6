"""The progress of a job and its checkpoint, which share the field `progress` of its hash.

Without a checkpoint the field has the progress alone, as in Node: `50`. With one it has an object with both:
`{"progress":50,"checkpoint":{"row":700}}`. An object with the key `checkpoint` that Node has stored is the same.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from spark_bull.core.dialects.base import json_text
from spark_bull.core.model.job_json import json_or_text

_PROGRESS: Final = "progress"
_CHECKPOINT: Final = "checkpoint"


class Reported(NamedTuple):
    """What the attempts of a job have reported. None: nothing."""

    progress: Any = None
    checkpoint: Any = None

    @classmethod
    def of(cls, value: Any) -> Reported:
        """Splits a value of the field `progress`."""
        if isinstance(value, dict) and _CHECKPOINT in value:
            return cls(value.get(_PROGRESS), value[_CHECKPOINT])
        return cls(value)

    @classmethod
    def parsed(cls, text: str | None) -> Reported:
        """Splits the stored field."""
        return cls.of(json_or_text(text))

    def json_text(self) -> str:
        """Returns the field as it is stored. Raises OptionError if JSON cannot hold it."""
        if self.checkpoint is None:
            return json_text(_PROGRESS, self.progress)
        progress = json_text(_PROGRESS, 0 if self.progress is None else self.progress)
        return f'{{"{_PROGRESS}":{progress},"{_CHECKPOINT}":{json_text(_CHECKPOINT, self.checkpoint)}}}'
