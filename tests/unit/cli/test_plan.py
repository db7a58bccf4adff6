"""The command `spark-bull plan`, which needs neither Redis nor Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from spark_bull.cli.main import main
from spark_bull.cli.plan import PLAN
from spark_bull.cli.sizes import size, size_text

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "capacity.md"
#: An address at which nothing answers.
NOWHERE = ("--url", "redis://127.0.0.1:1")


def test_the_page_shows_the_output_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text("utf-8")
    shown = page.split("```text\n")[1].split("```")[0]
    assert f"```sh\nspark-bull {PLAN.example}\n```" in page
    assert main([*PLAN.example.split(), *NOWHERE]) == 0
    assert capsys.readouterr().out == shown


def test_json_has_all_figures(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--jobs-per-day 8.64e6 --payload 2kB --job-time 50ms --backlog 2h --keep 0 --trigger 1m --memory 64GB"
    assert main(["plan", *arguments.split(), "--executor-cores", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["load"] == {
        "jobs_per_day": 8.64e6,
        "peak": 1.0,
        "payload": 2_000,
        "job_s": 0.05,
        "backlog_s": 7_200.0,
        "keep_s": 0.0,
        "trigger_s": 60.0,
        "memory": 64_000_000_000,
        "compact_up_to": 64,
        "executor_cores": 8,
        "partitions": 4,
    }
    assert found["plan"]["slots"] == 5.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--jobs-per-day -1", "--jobs-per-day: expected a number above 0 such as 5 or 1e8, got: '-1'"),
        ("--jobs-per-day many", "--jobs-per-day: expected a number above 0 such as 5 or 1e8, got: 'many'"),
        ("--jobs-per-day inf", "--jobs-per-day: expected a number above 0 such as 5 or 1e8, got: 'inf'"),
        ("--jobs-per-day 1 --peak 0", "--peak: expected a number above 0 such as 5 or 1e8, got: '0'"),
        ("--jobs-per-day 1 --payload -1kB", "--payload: expected a size such as 200B, 1kB, 2MB or 16GB, got: '-1kB'"),
        ("--jobs-per-day 1 --payload 1kilo", "--payload: expected a size such as 200B, 1kB, 2MB or 16GB, got: '1kilo'"),
        ("--jobs-per-day 1 --memory 0", "--memory: expected a size above 0, got: '0'"),
        ("--jobs-per-day 1 --trigger 0s", "--trigger: expected a time above 0, got: '0s'"),
        ("--jobs-per-day 1 --keep soon", "--keep: expected a duration such as 500ms, 30s, 5m, 2h or 1d, got: 'soon'"),
        ("--jobs-per-day 1 --executor-cores 1.5", "--executor-cores: expected a number of cores, got: '1.5'"),
    ],
)
def test_a_wrong_argument_is_one_sentence(capsys: pytest.CaptureFixture[str], arguments: str, said: str) -> None:
    # Otherwise argparse takes a negative value for an option.
    given = [part.replace(" ", "=") for part in arguments.replace(" --", "\n--").split("\n")]
    with pytest.raises(SystemExit) as exit:
        main(["plan", *given])
    assert exit.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"spark-bull plan: error: argument {said}"


def test_it_imports_no_spark() -> None:
    program = "import sys; from spark_bull.cli.main import main; main(sys.argv[1:]); print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, *PLAN.example.split()], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("200B", 200), ("1kB", 1_000), ("1.5MB", 1_500_000), (" 2TB ", 2 * 10**12)]
)
def test_a_size_has_a_unit(text: str, expected: int) -> None:
    assert size(text) == expected


@pytest.mark.parametrize("text", ["", "kB", "1 kB", "1KB", "1e3", "٣B"])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        size(text)


@pytest.mark.parametrize(("bytes_", "text"), [(0, "0 B"), (999, "999.0 B"), (1_000, "1.0 kB"), (29.4e9, "29.4 GB")])
def test_a_size_is_shown_with_its_largest_unit(bytes_: float, text: str) -> None:
    assert size_text(bytes_) == text
