"""A service without Redis."""

from __future__ import annotations

from threading import Event

import pytest

from spark_bull.core.threads import DaemonThread
from spark_bull.run.services.service import Service
from tests.support.wait import PATIENCE_S, interrupt_in


class OneRound(Service):
    """Its round begins, and ends when it may."""

    def __init__(self) -> None:
        super().__init__("one round")
        self.may_end = Event()

    def round(self) -> None:
        self.may_end.wait()
        self._over.set()


def test_a_service_whose_wait_was_interrupted_runs_until_its_round_has_ended() -> None:
    """Ctrl-C in `await_termination` does not make it believe that its thread has ended."""
    with OneRound() as service:
        interrupt_in(DaemonThread.join)
        with pytest.raises(KeyboardInterrupt):
            service.await_termination()
        assert service.running
        assert service.await_termination(0) is False
        service.may_end.set()
        assert service.await_termination(PATIENCE_S) is True
