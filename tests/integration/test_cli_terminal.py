"""The command in a terminal: completion, and tables that are refreshed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_bull import BullQueue, EmbeddedRedis, NewJob
from spark_bull.core.queue.monitor.activity import Look, look_at, throughput_of
from spark_bull.ops.cli import main
from spark_bull.ops.cli.commands import all_commands
from tests.integration.conftest import Run
from tests.support.commands import RunningCommand, running_command
from tests.support.network import UNUSED_PORT
from tests.support.wait import wait_until
from tests.support.worker import OurWorker

ROOT = Path(__file__).parents[2]
Shell = Callable[[str, str], list[str]]


@pytest.fixture
def in_shell(tmp_path: Path, run: Run) -> Shell:
    """Runs a program in a shell; returns the printed lines. $SCRIPT is the file with the script of the shell."""
    command = tmp_path / "spark-bull"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spark_bull.ops.cli {" ".join(run.common)} "$@"\n')
    command.chmod(0o755)

    def run_in_shell(shell: str, program: str) -> list[str]:
        script = tmp_path / f"script.{shell}"
        environment = os.environ | {"PYTHONPATH": str(ROOT), "SCRIPT": str(script)}
        environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
        with script.open("w") as file:
            subprocess.run([command, "completion", shell], stdout=file, env=environment, check=True)
        done = subprocess.run([shell, "-c", program], env=environment, capture_output=True, text=True, check=False)
        return done.stdout.splitlines()

    return run_in_shell


def in_bash(in_shell: Shell, *words: str) -> list[str]:
    """What bash suggests for the last word."""
    given = " ".join(f"'{word}'" for word in words)
    return in_shell(
        "bash",
        f"source $SCRIPT; COMP_WORDS=(spark-bull {given}); COMP_CWORD={len(words)}; "
        "_shtab_spark_bull spark-bull; printf '%s\\n' \"${COMPREPLY[@]}\"",
    )


def test_bash_completes_commands_options_and_values(in_shell: Shell) -> None:
    for words, suggested in (
        (["cou"], ["counts"]),
        (["counts", "mail", "--w"], ["--watch"]),
        (["clean", "mail", "--state", "comp"], ["completed"]),
        (["--prot"], ["--protocol"]),
    ):
        assert in_bash(in_shell, *words) == suggested
    assert set(all_commands()) <= set(in_bash(in_shell, ""))


def test_bash_completes_names_of_queues_and_runs_none(
    in_shell: Shell, open_queue: Callable[..., BullQueue], tmp_path: Path
) -> None:
    for name in ("mail", "maps", "orders", f"x$(touch {tmp_path}/ran)"):
        open_queue(name, "bullmq").add({})
    assert in_bash(in_shell, "counts", "ma") == ["mail", "maps"]
    assert in_bash(in_shell, "obliterate", "o") == ["orders"]
    in_bash(in_shell, "counts", "x")
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
def test_fish_completes_commands(in_shell: Shell) -> None:
    assert in_shell("fish", "source $SCRIPT; complete -C'spark-bull cou'")[0].startswith("counts\t")


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_zsh_reads_its_script(in_shell: Shell) -> None:
    loaded = in_shell("zsh", 'compdef() { echo $@ }; eval "$(cat $SCRIPT)"; whence -w _shtab_spark_bull')
    assert loaded[-2:] == ["_shtab_spark_bull -N spark-bull", "_shtab_spark_bull: function"]


def test_without_redis_no_queue_is_suggested(
    own_redis: Callable[..., EmbeddedRedis], capsys: pytest.CaptureFixture[str]
) -> None:
    redis = own_redis()
    redis.stop()
    assert main(["--url", redis.url, "completion", "queues"]) == 0
    assert capsys.readouterr() == ("", "")


#: Options of `counts` in these tests.
OFTEN = ("--watch", "50ms")


@pytest.fixture
def queue(queue: BullQueue) -> BullQueue:
    queue.add({})
    return queue


def documents(command: RunningCommand) -> list[dict[str, object]]:
    return [json.loads(line) for line in command.lines]


# counts --watch


def test_a_pipe_gets_a_json_document_per_queue_and_interval(queue: BullQueue, run: Run) -> None:
    with running_command(*run.common, "counts", "m*", *OFTEN, "--json") as command:
        first = wait_until(lambda: documents(command), "the first document")[0]
        assert (first["queue"], first["in_per_s"], first["out_per_s"], first["changes"]) == ("mail", None, None, {})
        assert first["counts"] == queue.counts()
        queue.add_many(NewJob({}) for _ in range(3))
        changed = wait_until(
            lambda: [row for row in documents(command)[1:] if row["changes"]["wait"] == 3], "the jobs to be counted"
        )[0]
        assert changed["in_per_s"] > 0
        assert (changed["out_per_s"], changed["counts"]["wait"]) == (0, 4)
        queue.drain()
        wait_until(lambda: [row for row in documents(command) if row["out_per_s"]], "the jobs to have left")
        assert command.interrupt() == 0
        assert "\x1b" not in command.text


def test_a_pipe_gets_a_line_per_queue_and_interval(queue: BullQueue, run: Run) -> None:
    queue.pause()
    with running_command(*run.common, "counts", "mail", *OFTEN) as command:
        wait_until(lambda: len(command.lines) > 1, "two lines")
        assert command.lines[0].endswith("  mail  wait 1") or command.lines[0].endswith("  mail  paused 1")
        assert command.lines[1].split("Z  ")[1].startswith("mail  in 0.0/s  out 0.0/s  ")
        queue.add({})
        wait_until(lambda: " 2 (+1)" in command.text, "the job to be counted")
        assert command.interrupt(signal.SIGTERM) == 0
        assert "\x1b" not in command.text


def test_a_command_that_waits_for_redis_ends_with_sigterm() -> None:
    with running_command("--url", f"redis://127.0.0.1:{UNUSED_PORT}", "counts", "mail", terminal=True) as command:
        wait_until(lambda: "waiting for Redis" in command.text, "the wait")
        assert f"waiting for Redis at redis://127.0.0.1:{UNUSED_PORT}, 20 s at most: " in command.text
        assert command.interrupt(signal.SIGTERM) == 128 + signal.SIGTERM
        assert "Traceback" not in command.text


def test_a_terminal_gets_a_table_that_is_updated(queue: BullQueue, run: Run) -> None:
    with running_command(*run.common, "counts", "mail", *OFTEN, terminal=True) as command:
        wait_until(lambda: "mail" in command.text, "the table")
        queue.add({}, delay=60_000)
        wait_until(lambda: "1 (+1)" in command.text, "the job to be counted")
        assert command.interrupt() == 0
        show_cursor, clear_line = "\x1b[?25h", "\x1b[2K"
        assert clear_line in command.text
        assert command.text.rstrip().endswith(show_cursor)
        assert "Traceback" not in command.text


def test_counts_go_on_after_an_outage_of_redis(own_redis: Callable[..., EmbeddedRedis]) -> None:
    redis = own_redis({"appendonly": "yes"})
    BullQueue("mail", url=redis.url, protocol="bullmq").add({})
    with running_command("--url", redis.url, "counts", "mail", *OFTEN, "--json") as command:
        wait_until(lambda: documents(command), "the first document")
        redis.kill()
        lost = wait_until(lambda: [row for row in documents(command) if "error" in row], "the error")[0]
        assert f"expected Redis at {redis.url}" in str(lost["error"])
        redis.restart()
        wait_until(lambda: "error" not in documents(command)[-1], "the counts")
        assert documents(command)[-1]["counts"]["wait"] == 1
        assert command.interrupt() == 0


@pytest.mark.parametrize("protocol", ["bull-1", "bullmq"])
def test_jobs_that_enter_and_leave_are_counted(open_queue: Callable[..., BullQueue], protocol: str) -> None:
    queue = open_queue("mail", protocol)
    before = look_at(queue.handle)
    queue.add_many(NewJob({}, delay=delay) for delay in (0, 0, 60_000))
    after_add = look_at(queue.handle)
    added = throughput_of(Look("mail", after_add.at_ms - 2_000, before.ids, before.counts), after_add)
    assert (added.added_per_s, added.left_per_s) == (1.5, 0.0)
    assert (added.changes["wait"], added.changes["delayed"]) == (2, 1)
    with OurWorker(queue.handle):
        wait_until(lambda: queue.counts()["completed"] == 2, "the jobs to complete")
    after = look_at(queue.handle)
    done = throughput_of(after_add, Look("mail", after_add.at_ms + 1_000, after.ids, after.counts))
    assert (done.added_per_s, done.left_per_s, done.changes["completed"]) == (0.0, 2.0, 2)
    # A queue that is deleted begins to count anew.
    assert throughput_of(after_add, before).added_per_s == 0


# tail


@pytest.mark.parametrize("protocol", ["bull-1", "bullmq"])
def test_events_are_printed(open_queue: Callable[..., BullQueue], run: Run, prefix: str, protocol: str) -> None:
    # The channels of Bull 1 have no prefix.
    name = f"q-{prefix.strip('{}')}"
    queue = open_queue(name, protocol)
    queue.add({})
    command_line = (*run.common, "tail", name, "--event", "completed,failed")
    with running_command(*command_line, "--json") as as_json, running_command(*command_line) as as_lines:

        def both() -> bool:
            """Whether both have begun: Bull keeps no events."""
            with OurWorker(queue.handle):
                number = queue.counts()["completed"]
                queue.add({})
                wait_until(lambda: queue.counts()["completed"] > number, "a job to complete")
            return bool(as_json.lines and as_lines.lines)

        wait_until(both, "an event")
        event = documents(as_json)[0]
        assert (event["queue"], event["event"]) == (name, "completed")
        assert {row["event"] for row in documents(as_json)} == {"completed"}
        assert f"  {name}  completed  " in as_lines.lines[0]
        assert as_json.interrupt() == 0
        assert as_lines.interrupt(signal.SIGTERM) == 0


def test_kept_events_are_printed_from_an_id_on(queue: BullQueue, run: Run) -> None:
    queue.add({}, delay=60_000, job_id="later")
    with running_command(*run.common, "tail", "mail", "--from", "0", "--json") as command:
        wait_until(lambda: [row for row in documents(command) if row["event"] == "delayed"], "the events")
        events = documents(command)
        assert [(row["event"], row["job_id"]) for row in events][:2] == [("added", "1"), ("waiting", "1")]
    with running_command(*run.common, "tail", "m*", "--from", str(events[0]["id"])) as command:
        wait_until(lambda: len(command.lines) > 2, "the events")
        assert "  mail  waiting  1" in command.lines[0]
        (delayed,) = [line for line in command.lines if "  mail  delayed  later" in line]
        assert "runs in " in delayed


def test_an_event_is_one_line_without_control_characters_and_unpaired_surrogates(queue: BullQueue, run: Run) -> None:
    for field in (("failedReason", "a\nb\x1b[31m"), ("returnvalue", '"\\ud800"')):
        queue.handle.connection.call("XADD", queue.handle.keys["events"], "*", "event", "failed", "jobId", "7", *field)
    for options, reason, value in (
        ((), "  mail  failed  7  failedReason a\\nb\\x1b[31m", "returnvalue \\ud800"),
        (("--json",), '\\u001b[31m", "fields": {}}', '"\\ud800", "fields": {}}'),
    ):
        with running_command(*run.common, "tail", "mail", "--from", "0", "--event", "failed", *options) as command:
            wait_until(lambda command=command: len(command.lines) > 1, "the events")
            assert command.lines[0].endswith(reason)
            assert command.lines[1].endswith(value)
