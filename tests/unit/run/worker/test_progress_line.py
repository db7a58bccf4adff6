"""A progress is one line on a terminal, and lines elsewhere; a worker that has stopped shows what it has done."""

from __future__ import annotations

import io
from threading import Event

import pytest

from spark_bull.run.progress_line import ProgressLine
from spark_bull.run.slot.status import WorkerStatus
from spark_bull.run.worker.base_worker import WorkerProgress
from tests.support.wait import PATIENCE_S


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_on_a_terminal_is_replaced_and_not_wrapped() -> None:
    stream, shown = Terminal(), Event()

    def text() -> str:
        if stream.getvalue():
            shown.set()
        return "x" * 500

    line = ProgressLine(text, 0.001, stream)
    line.start()
    assert shown.wait(PATIENCE_S)
    line.stop(lambda: "done")
    *updates, last = stream.getvalue().split("\r\033[K")[1:]
    assert updates
    assert all(len(update) < 500 for update in updates)
    assert last == "done\n"


def test_a_line_without_a_last_text_is_removed_from_a_terminal() -> None:
    stream = Terminal()
    line = ProgressLine(lambda: None, 0.001, stream)
    line.start()
    line.stop()
    line.stop()
    assert stream.getvalue() == "\r\033[K"


def test_elsewhere_only_the_last_line_of_a_short_progress_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_bull.run.progress_line._LOG_S", PATIENCE_S)
    stream = io.StringIO()
    line = ProgressLine(lambda: "now", 0.001, stream)
    assert not line.in_place
    line.start()
    line.stop(lambda: "done")
    assert stream.getvalue() == "done\n"


class Stopped:
    def status(self) -> WorkerStatus:
        return WorkerStatus("stopped", completed=100, lag=3)


def test_a_stopped_worker_shows_no_rate_and_no_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_bull.run.worker.base_worker._INTERVAL_S", PATIENCE_S)
    stream = Terminal()
    progress = WorkerProgress(Stopped(), stream)
    progress.start()
    progress.stop()
    assert stream.getvalue() == "\r\033[Kstopped: 100 completed, 0 failed, 0 retried; 3 waiting\n"


def test_slots_are_shown_with_what_they_wait_for() -> None:
    status = WorkerStatus("running", waiting_slots=2)
    assert str(status).endswith("0 jobs/s, 0 waiting, 0 slots running, 2 waiting for an executor with a free core")
    assert str(WorkerStatus("running", slots=0)).endswith("0 jobs/s, 0 waiting, 0 slots running")
    assert str(WorkerStatus("running", slots=3, busy=1)).endswith("0 jobs/s, 0 waiting, 1 of 3 slots busy")
