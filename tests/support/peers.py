"""The Node packages against which each dialect is tested."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest

NODE_DIRECTORY = Path(__file__).parent.parent / "node"


@dataclass(frozen=True)
class Peer:
    """A Node package by its alias in tests/node/package.json, and its dialect."""

    alias: str
    dialect: str

    def __str__(self) -> str:
        return self.alias

    def among(self, packages: Collection[str]) -> bool:
        """Whether its dialect, its major version, such as "bull-4", or its alias is one of these."""
        return not {self.dialect, self.alias.partition(".")[0], self.alias}.isdisjoint(packages)

    @property
    def custom_ids(self) -> bool:
        return self.alias != "bull-1.0.0"

    @property
    def named_jobs(self) -> bool:
        return self.dialect != "bull-1"

    @property
    def bulk(self) -> bool:
        return self.dialect != "bull-1"


PEERS = [
    Peer("bull-1.0.0", "bull-1"),
    Peer("bull-1.1.3", "bull-1"),
    Peer("bull-3.29.3", "bull"),
    Peer("bull-4.16.5", "bull"),
    Peer("bullmq-5.81.5", "bullmq"),
    Peer("bullmq-6.7.0", "bullmq"),
]

#: The newest package of each dialect: `make test` compares with these, `make test-rest` with the others.
NEWEST = ("bull-1.1.3", "bull-4.16.5", "bullmq-6.7.0")


def each_peer_of(*packages: str) -> pytest.MarkDecorator:
    """Runs a test with each `peer` of these dialects, major versions or aliases."""
    peers = [
        pytest.param(peer, marks=() if peer.alias in NEWEST else pytest.mark.rest, id=peer.alias)
        for peer in PEERS
        if peer.among(packages)
    ]
    return pytest.mark.parametrize("peer", peers)
