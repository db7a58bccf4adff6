"""What Redis keeps: keys that stay until something removes them, and keys that expire."""

from __future__ import annotations

from collections import defaultdict

from redis import Redis

STAY = "Redis: keys that stay"
EXPIRE = "Redis: keys that expire"
USED, RESIDENT = "Redis: used_memory", "Redis: resident"


def used(client: Redis) -> dict[str, int]:
    info = client.info("memory")
    return {USED: info["used_memory"], RESIDENT: info["used_memory_rss"]}


def by_expiry(client: Redis) -> dict[str, int]:
    """Bytes of the keys of both kinds."""
    sizes = {STAY: 0, EXPIRE: 0}
    for _, size, ttl in _sizes(client):
        sizes[EXPIRE if ttl >= 0 else STAY] += size
    return sizes


def kinds(client: Redis) -> dict[str, tuple[int, int]]:
    """Number and bytes of the private keys, by what they are for."""
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name, size, _ in _sizes(client):
        kind = name.partition(b":spark:")[2].partition(b":")[0].decode() or "jobs and states"
        found[kind] = (found[kind][0] + 1, found[kind][1] + size)
    return dict(found)


def _sizes(client: Redis) -> list[tuple[bytes, int, int]]:
    """Name, bytes and time to live of each key."""
    names = list(client.scan_iter(count=1000))
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.memory_usage(name)
        pipeline.ttl(name)
    replies = pipeline.execute()
    return [(name, size or 0, ttl) for name, size, ttl in zip(names, replies[::2], replies[1::2], strict=True)]
