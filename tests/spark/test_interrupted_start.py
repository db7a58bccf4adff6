"""An interrupted start of Spark leaves no JVM; a command says before it what is wrong without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_bull import BullQueue
from spark_bull.ops.cli.main import main
from tests.support.wait import PATIENCE_S, wait_until


def child_of(parent: int) -> int | None:
    """The process that a process has started, which becomes its JVM."""
    found = [int(text) for text in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    return found[0] if found else None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("sent", "has_started"), [(signal.SIGTERM, False), (signal.SIGINT, True)], ids=["script", "jvm"]
)
def test_an_interrupt_while_spark_starts_leaves_no_jvm(
    sent: signal.Signals, has_started: bool, queue: BullQueue, redis_url: str, prefix: str
) -> None:
    queue.add({})
    status, child, said = interrupted(sent, has_started, redis_url, prefix)
    while "Exception ignored in" in said:
        # Python drops the exception of a signal that arrives in a hook of os.fork.
        status, child, said = interrupted(sent, has_started, redis_url, prefix)
    assert status == 128 + sent, said
    assert "Traceback" not in said
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the end of the JVM")


def interrupted(sent: signal.Signals, has_started: bool, redis_url: str, prefix: str) -> tuple[int, int, str]:
    """Interrupts a program that starts Spark; returns its status, the process that it has started, and what it said."""
    command = [sys.executable, "-m", "spark_bull.ops.cli", "report", "--queue", "q", "--master", "local[1]"]
    command += ["--url", redis_url, "--prefix", prefix]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as program:
        wait_until(lambda: child_of(program.pid) or program.poll() is not None, "the start of Spark")
        assert program.poll() is None, program.communicate()[1].decode()
        child = wait_until(lambda: child_of(program.pid), "the process that Spark starts")
        if has_started:
            command_line = Path(f"/proc/{child}/cmdline")
            wait_until(lambda: b"java" in command_line.read_bytes().partition(b"\0")[0], "the JVM")
        program.send_signal(sent)
        # A JVM that stays would keep its standard error open.
        said = program.communicate(timeout=PATIENCE_S)[1].decode()
    return program.returncode, child, said


def test_a_function_that_does_not_exist_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], redis_url: str, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken.py").write_text("send =\n")
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", lambda _: pytest.fail("Spark was started"))
    work = ["work", "--queue", "q", "--url", redis_url, "--processor", "json:load", "--setup", "broken:send"]
    assert main(work) == 2
    said = "expected --setup to be importable, got 'broken:send': invalid syntax (broken.py, line 1)"
    assert capsys.readouterr().err == f"spark-bull work: {said}\n"


def test_a_module_of_files_that_spark_adds_may_come_later(
    monkeypatch: pytest.MonkeyPatch, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", started)
    work = ["work", "--queue", "q", "--url", redis_url, "--processor", "nowhere:f"]
    assert main([*work, "--conf", "spark.submit.pyFiles=jobs.zip"]) == 130
    monkeypatch.setitem(os.environ, "PYSPARK_GATEWAY_PORT", "1")
    assert main(work) == 130
