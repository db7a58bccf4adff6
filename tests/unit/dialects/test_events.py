"""Events of Bull, whose messages are JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_bull.dialects.registry import DIALECTS
from spark_bull.keys import QueueKeys

KEYS = QueueKeys("q", "bull")
HALF, SHOWN = "half \ud83c", "half \ufffd"


@pytest.mark.parametrize(
    ("protocol", "channel", "message"),
    [
        ("bull", KEYS.channel("failed"), {"jobId": HALF, "val": HALF}),
        ("bull-1", KEYS.plain_channel("failed"), ["sender", {"opts": {"jobId": HALF}}, {"message": HALF}]),
    ],
)
def test_ids_and_reasons_are_the_texts_of_redis(protocol: str, channel: str, message: Any) -> None:
    event = DIALECTS[protocol].event_of(KEYS, channel, json.dumps(message).encode())
    assert event is not None
    assert (event.event, event.job_id, event.failed_reason) == ("failed", SHOWN, SHOWN)
