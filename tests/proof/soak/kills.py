"""The faults of the soak: those of the table that a server or a party can have again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from tests.proof.faults import FAULTS, Site
from tests.proof.soak.parties import Parties, SparkDriver

#: Columns of the table that are about Redis.
OF_REDIS = (
    "Redis killed, AOF always",
    "Redis suspended 10 s",
    "OOM",
    "READONLY",
    "NOREPLICAS",
    "MISCONF",
    "BUSY",
    "SCRIPT FLUSH",
    "CLIENT KILL",
)
Kill = Callable[[], None]


def kills_of(parties: Parties, site: Site) -> dict[str, Kill]:
    """All faults, by their names."""
    kills: dict[str, Kill] = {f"{name} killed": lambda name=name: parties.kill(name) for name in parties.running}  # type: ignore[misc]
    for name, party in parties.running.items():
        if isinstance(party, SparkDriver):
            kills[f"a Python process of {name} killed"] = lambda party=party: party.kill_python(site.random)  # type: ignore[misc]
    return kills | {name: lambda name=name: FAULTS[name].inject(site) for name in OF_REDIS}


def shuffled(names: list[str], random: Random) -> Iterator[str]:
    """All names in a random order, again and again, so that each comes as often as the others."""
    while True:
        yield from random.sample(names, len(names))
