"""The blocks of the quickstart run in turn, in an environment that is not activated, and log nothing besides what Spark
itself logs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark_bull.spark.platform.capabilities import CAPABILITIES
from spark_bull.spark.platform.requirements import LATE, MAX_ATTEMPTS
from tests.support.examples import QUICKSTART, ROOT, blocks
from tests.support.spark_submit import bare_python
from tests.support.wait import PATIENCE_S
from tests.support.wheel import CONSTRAINTS, released_wheel
from tools.matrix import find_python

#: The command that the page gives for its program.
RUN = "python -i quickstart.py\n"
#: Lines of Spark, Java and Hadoop at the start of a local session.
OF_SPARK = (
    r"WARNING: Using incubator modules: .*",
    r"Using Spark's default log4j profile: .*",
    r".* WARN Utils: (Your hostname, .*|Set SPARK_LOCAL_IP if you need to bind to another address)",
    r"Setting default log level to \"WARN\"\.",
    r"To adjust logging level use sc\.setLogLevel.*",
    r".* WARN MacAddressUtil: Failed to find a usable hardware address .*",
    r".* WARN NativeCodeLoader: Unable to load native-hadoop library .*",
    r".* WARN Utils: Service 'SparkUI' could not bind on port .*",
    # At the start of a streaming query.
    r".* WARN ResolveWriteToStream: spark\.sql\.adaptive\.enabled is not supported in streaming .*",
    # Its progress bar.
    r"\[Stage .*\]",
    *([] if CAPABILITIES["available-now"].has else [r".* WARN MicroBatchExecution: .* Trigger\.AvailableNow\..*"]),
)
#: Variables that a new user does not have.
FOREIGN = {"PYTHONPATH", "PYSPARK_PYTHON", "SPARK_CONF_DIR", "VIRTUAL_ENV"}
LOCAL = {"PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell"}
#: What is entered at the end.
REGISTER_AGAIN = """
register(spark)
# Such as the one of each query of a stream.
_ = spark._jsparkSession.cloneSession().sessionState().dataSourceManager().dataSourceExists("bull")
"""
#: In place of another terminal.
IN_A_SHELL = """
import subprocess
_ = subprocess.run(["bash", "-e", "-c", {}], env={{**{!r}, "SPARK_BULL_URL": redis.url}}, check=True)
"""


#: A release also runs with the oldest and the newest Python.
PYTHONS = ("running",) if released_wheel() is None else ("running", "3.10", "3.13")


@pytest.fixture(params=PYTHONS)
def python(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The Python of an environment that has this package; of a release, a fresh environment with nothing else."""
    if (wheel := released_wheel()) is not None:
        folder = tmp_path / "environment"
        base = sys.executable if request.param == "running" else find_python(request.param)
        subprocess.run([base, "-m", "venv", str(folder)], check=True)
        wanted = f"spark-bull[spark,local] @ {wheel.as_uri()}"
        command = [str(folder / "bin" / "pip"), "install", "--quiet", "--constraint", str(CONSTRAINTS), wanted]
        subprocess.run(command, check=True)
        return folder / "bin" / "python"
    python = bare_python(tmp_path / "environment")
    [paths] = python.parents[1].rglob("installed.pth")
    paths.write_text(f"{paths.read_text()}{ROOT}\n")
    return python


def test_the_blocks_of_the_quickstart_run_in_turn_and_log_nothing_of_their_own(python: Path, tmp_path: Path) -> None:
    install, program, run, *later = blocks(QUICKSTART, ROOT)
    assert (install.language, program.language, run.text) == ("sh", "python", RUN)
    own_programs = str(Path(sys.executable).parent)
    path = ":".join(folder for folder in os.environ["PATH"].split(":") if folder != own_programs)
    in_shell = {**os.environ, "PATH": f"{own_programs}:{path}"}
    entered = [
        block.text if block.language == "python" else IN_A_SHELL.format(repr(block.text), in_shell) for block in later
    ]
    for attempt in range(MAX_ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        (folder / "quickstart.py").write_text(program.text)
        ran = subprocess.run(
            [python, *RUN.split()[1:]],
            input="".join([*entered, REGISTER_AGAIN]),
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name not in FOREIGN} | LOCAL | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        # Spark waits for ten seconds for the Python of a stream.
        if LATE not in ran.stderr:
            break
    assert ran.returncode == 0, ran.stderr[-4000:]
    shown = ran.stdout.replace(" ", "")
    for text in ("numbers|wait|100", '{"doubled":', "SPARK_BULL_URL=redis://127.0.0.1:", "|completed|", '{"n":21}'):
        assert text in shown
    lines = [re.sub(r"^(>>> |\.\.\. )+", "", line).strip() for line in re.split(r"[\r\n]", ran.stderr)]
    assert [line for line in lines if line and not any(re.fullmatch(pattern, line) for pattern in OF_SPARK)] == []
