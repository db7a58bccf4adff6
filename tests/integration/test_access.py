"""Each verb works with the rights that docs/access.md lists."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest
from redis import Redis

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.queue.work.claim import work
from spark_bull.run.slot.slot_queue import JobWait
from tests.integration.verbs import VERBS, doctor
from tests.support.redis_servers import PASSWORD, USER, rules
from tests.support.wait import wait_until
from tools.access_table import MODULE, PAGE, module, with_lists

PREFIX = "test-p"


def doctor_checks_all(queue: BullQueue) -> None:
    assert "unchecked" not in {finding.level for finding in doctor(queue)}


@pytest.mark.parametrize("protocol", ["bull-1", "bull", "bullmq"])
def test_a_verb_works_with_the_documented_rights(own_redis: Callable[..., EmbeddedRedis], protocol: str) -> None:
    server = own_redis()
    url = server.url.replace("redis://", f"redis://{USER}:{PASSWORD}@")
    with Redis.from_url(server.url) as admin:
        for verb, use in {**VERBS, "doctor": doctor_checks_all}.items():
            admin.flushall()
            # Its connections end, too.
            admin.execute_command("ACL", "DELUSER", USER)
            given = rules("all", verb, prefix="test-p:*").split()
            admin.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", *given)
            with BullQueue("q", url=server.url, prefix=PREFIX, protocol=protocol) as filled:
                filled.add({"n": 0})
            with BullQueue("q", url=url, prefix=PREFIX, retry_ms=0) as queue:
                assert queue.protocol == protocol, verb
                use(queue)
                with pytest.raises(ConnectionLost, match="denied the user a required permission"):
                    queue.handle.connection.call("GET", "elsewhere:q:id")


def test_a_wait_that_fails_is_warned_of_once_and_not_repeated_at_once(
    own_redis: Callable[..., EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot would claim again, which succeeds, and wait again: thousands of times per second."""
    monkeypatch.setattr("spark_bull.run.slot.slot_queue.RECONNECT_PAUSE_S", 10_000.0)
    server = own_redis({"user": f"{USER} on >{PASSWORD} ~* &* +@all -bzpopmin"})
    url = server.url.replace("redis://", f"redis://{USER}:{PASSWORD}@")
    said: list[str] = []
    with BullQueue("q", url=url, protocol="bullmq", retry_ms=0) as queue:
        claim = work(queue.handle, WorkSettings("w"), None, 1)
        with JobWait(queue.handle, "w", "w", None, lambda what, why: said.append(f"{what} {why}")) as wait:
            for _ in range(2):
                wait.begin(claim)
                thread = Thread(target=wait.run)
                thread.start()
                wait_until(lambda: said, "the warning")
                thread.join(0.1)
                assert thread.is_alive()
                wait.unblock()
                thread.join()
    assert len(said) == 1
    assert "lost Redis, retrying" in said[0]


def test_the_documented_rights_are_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_lists(text) == text, "run: python tools/access_table.py"
    assert MODULE.read_text(encoding="utf-8") == module(), "run: python tools/access_table.py"
