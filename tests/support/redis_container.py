"""A Redis in a container of Docker, which the tests choose first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from testcontainers.community.redis import RedisContainer

IMAGE = "redis:7.2-alpine"
_PORT = 6379


@contextmanager
def redis_container() -> Iterator[str]:
    """Starts the container; its URL. It ends with the block."""
    with RedisContainer(IMAGE) as container:
        yield f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(_PORT)}/0"
