"""Events while connections are lost, and rights that are missing."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, QueueEvent
from spark_bull.core.errors import ConnectionLost
from tests.support.wait import PATIENCE_S, wait_until


def test_events_of_bullmq_have_no_gap_when_the_connection_is_lost(own_redis: Callable[..., EmbeddedRedis]) -> None:
    server = own_redis()
    with (
        Redis.from_url(server.url) as client,
        BullQueue("q", url=server.url, protocol="bullmq") as queue,
        queue.events(timeout_s=PATIENCE_S) as events,
    ):
        waiting = (event.job_id for event in events if event.event == "waiting")
        for _ in range(3):
            early = queue.add({})
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            late = queue.add({})
            assert [next(waiting), next(waiting)] == [early, late]


def test_a_reader_that_is_slower_than_the_stream_is_trimmed_is_warned(
    own_redis: Callable[..., EmbeddedRedis], own_log: pytest.LogCaptureFixture
) -> None:
    server = own_redis()
    with (
        Redis.from_url(server.url) as client,
        BullQueue("q", url=server.url, protocol="bullmq") as queue,
        queue.events(timeout_s=0) as events,
        own_log.at_level(logging.WARNING, "spark_bull"),
    ):
        first = queue.publish("tick")
        assert [event.id for event in events.read(0)] == [first]
        with client.pipeline(transaction=False) as pipeline:
            for _ in range(3_000):
                pipeline.xadd("bull:q:events", {"event": "tick"})
            pipeline.execute()
        assert len(events.read(0)) == 1_000
        assert own_log.text == ""
        client.xtrim("bull:q:events", maxlen=1_500, approximate=False)
        assert len(events.read(0)) == 1_000
        assert "may be missing: the stream was trimmed faster than it was read" in own_log.text


def test_nothing_is_missing_from_a_stream_that_was_never_trimmed(
    own_redis: Callable[..., EmbeddedRedis], own_log: pytest.LogCaptureFixture
) -> None:
    with (
        own_log.at_level(logging.WARNING, "spark_bull"),
        BullQueue("q", url=own_redis().url, protocol="bullmq") as queue,
        queue.events(timeout_s=0) as new,
    ):
        for _ in range(1_000):
            queue.publish("tick")
        for events in (new, queue.events(start="0", timeout_s=0)):
            assert len(events.read(0)) == 1_000
    assert own_log.text == ""


def test_a_lost_connection_to_channels_is_made_again_with_a_warning(
    own_redis: Callable[..., EmbeddedRedis], caplog: pytest.LogCaptureFixture
) -> None:
    server = own_redis()
    with (
        Redis.from_url(server.url) as client,
        BullQueue("q", url=server.url, protocol="bull") as queue,
        queue.events() as events,
        caplog.at_level(logging.WARNING, "spark_bull"),
    ):
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        missed = queue.add({})
        seen: list[QueueEvent] = []
        warning = "events of q may be missing, as the connection to Redis was lost"
        wait_until(lambda: seen.extend(events.read(0)) or warning in caplog.text, "the warning")
        later = queue.add({})
        while not any(event.job_id == later for event in seen):
            seen += events.read(PATIENCE_S)
        assert not any(event.job_id == missed for event in seen)


def test_the_error_of_a_user_without_the_rights_to_the_channels_lists_them(
    own_redis: Callable[..., EmbeddedRedis],
) -> None:
    server = own_redis({"user": "app on >secret ~* resetchannels &bull:* +@all"})
    url = server.url.replace("redis://", "redis://app:secret@")
    with (
        BullQueue("q", url=url, protocol="bull") as queue,
        pytest.raises(ConnectionLost, match=r"the rights to these channels: &bull:q:completed .*&bull:q:waiting@\*"),
    ):
        queue.events()
