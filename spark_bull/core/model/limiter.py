"""The rate limit of a worker, as in the Node libraries."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from spark_bull.core.errors import OptionError, encodable, expected

_EXPECTED: Final = (
    'an object such as {"max": 100, "duration": 1000} (jobs, ms), both positive integers; `groupKey` may name a field '
    "of the payload, `bounceBack` be true or false"
)

_MEMBERS: Final = {"max", "duration", "groupKey", "bounceBack"}


class Limiter(NamedTuple):
    """At most `max` jobs of the queue start in `duration` ms.

    group_key: the limit applies to each group of jobs by itself (Bull 3 and 4). The group of a job is the part of its
    id behind the last colon: Node's queues with this `groupKey` append the field of the payload to the ids of new jobs.
    bounce_back: jobs over the limit stay in `wait` (Bull 3 and 4, which delay them otherwise). In the other dialects
    they always do.
    """

    max: int
    duration: int
    group_key: str | None = None
    bounce_back: bool = False

    @property
    def given(self) -> dict[str, str | int]:
        """The limiter as it is given in options."""
        group = {} if self.group_key is None else {"groupKey": self.group_key}
        back = {"bounceBack": True} if self.bounce_back else {}
        return {"max": self.max, "duration": self.duration, **group, **back}


def parse_limiter(name: str, value: str) -> Limiter:
    """Parses a JSON object with max, duration and, optionally, groupKey or bounceBack. Raises OptionError."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict) or not {"max", "duration"} <= set(parsed) <= _MEMBERS:
        raise expected(name, _EXPECTED, value)
    group_key, bounce_back = parsed.get("groupKey"), parsed.get("bounceBack", False)
    limits = (parsed["max"], parsed["duration"])
    is_valid = all(type(number) is int and number >= 1 for number in limits) and isinstance(bounce_back, bool)
    if not is_valid or not (group_key is None or (isinstance(group_key, str) and group_key)):
        raise expected(name, _EXPECTED, value)
    if group_key and bounce_back:
        raise OptionError(
            f"expected one of `groupKey` and `bounceBack` in `{name}`, got both: jobs of a group over its limit would "
            "keep the jobs of other groups from starting; leave one out"
        )
    return Limiter(*limits, group_key and encodable(f"{name}.groupKey", group_key), bounce_back)
