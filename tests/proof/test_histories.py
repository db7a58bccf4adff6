"""Random histories have an order that explains them; with an error planted in a script, some have none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from spark_bull.embedded.redis import EmbeddedRedis
from tests.proof.histories import KINDS, first_found, violations
from tests.proof.mutants import MUTANTS, Mutant, Workload


@pytest.fixture(scope="module")
def own() -> Iterator[Redis]:
    """A server of which the histories move the clock."""
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client:
        yield client


@pytest.mark.parametrize(("workload", "dialect"), KINDS)
def test_one_order_explains_a_history(own: Redis, workload: Workload, dialect: str) -> None:
    """`make faults` checks many."""
    assert violations(own, workload, 0, dialect) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_no_order_explains_a_history_of_scripts_with_this_error(own: Redis, mutant: Mutant) -> None:
    assert first_found(own, mutant, mutant.seed) is not None
