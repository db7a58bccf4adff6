"""Completion of the command in shells, which call the printed scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_bull.core.embedded.redis import EmbeddedRedis
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.ops.cli import main
from spark_bull.ops.cli.commands import all_commands

ROOT = Path(__file__).parents[2]
Shell = Callable[[str, str], list[str]]


@pytest.fixture
def in_shell(tmp_path: Path, redis_url: str, prefix: str) -> Shell:
    """Runs a program in a shell; returns the printed lines. $SCRIPT is the file with the script of the shell."""
    command = tmp_path / "spark-bull"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m spark_bull.ops.cli --prefix "{prefix}" "$@"\n')
    command.chmod(0o755)

    def run(shell: str, program: str) -> list[str]:
        script = tmp_path / f"script.{shell}"
        environment = os.environ | {"PYTHONPATH": str(ROOT), "SPARK_BULL_URL": redis_url, "SCRIPT": str(script)}
        environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
        with script.open("w") as file:
            subprocess.run([command, "completion", shell], stdout=file, env=environment, check=True)
        done = subprocess.run([shell, "-c", program], env=environment, capture_output=True, text=True, check=False)
        return done.stdout.splitlines()

    return run


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
    assert {command.name for command in all_commands()} <= set(in_bash(in_shell, ""))


def test_bash_completes_names_of_queues_and_runs_none(
    in_shell: Shell, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    for name in ("mail", "maps", "orders", f"x$(touch {tmp_path}/ran)"):
        BullQueue(name, url=redis_url, prefix=prefix, protocol="bullmq").add({})
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
