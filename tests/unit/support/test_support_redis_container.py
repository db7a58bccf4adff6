"""The container of Redis, where Docker does not run either."""

from __future__ import annotations

from importlib import import_module


def test_the_fixture_of_the_container_imports_without_a_warning() -> None:
    # Warnings for modules of the tests are errors.
    assert callable(import_module("tests.support.redis_container").redis_container)
