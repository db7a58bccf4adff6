"""The program of the quickstart, in a process of its own, logs nothing besides what Spark itself logs at its start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.snippets import blocks
from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]
#: Lines of Spark, Java and Hadoop at the start of a local session.
OF_SPARK = (
    r"WARNING: Using incubator modules: .*",
    r"Using Spark's default log4j profile: .*",
    r".* WARN Utils: (Your hostname, .*|Set SPARK_LOCAL_IP if you need to bind to another address)",
    r"Setting default log level to \"WARN\"\.",
    r"To adjust logging level use sc\.setLogLevel.*",
    r".* WARN NativeCodeLoader: Unable to load native-hadoop library .*",
    r".* WARN Utils: Service 'SparkUI' could not bind on port .*",
    # Its progress bar.
    r"\[Stage .*\]",
)
#: What the program does in the end.
REGISTER_AGAIN = """
register(spark)
# Such as the one of each query of a stream.
spark._jsparkSession.cloneSession().sessionState().dataSourceManager().dataSourceExists("bull")
"""


def test_the_quickstart_logs_nothing_of_its_own_also_when_it_registers_again(tmp_path: Path) -> None:
    program = next(block for block in blocks(ROOT / "docs/quickstart.md", ROOT) if block.language == "python")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "SPARK_CONF_DIR")
    }
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYSPARK_SUBMIT_ARGS": "--master local[2] pyspark-shell",
    }
    (tmp_path / "program.py").write_text(program.text + REGISTER_AGAIN)
    command = [sys.executable, "program.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert '{"doubled":' in ran.stdout
    lines = [line.strip() for line in re.split(r"[\r\n]", ran.stderr) if line.strip()]
    assert [line for line in lines if not any(re.fullmatch(pattern, line) for pattern in OF_SPARK)] == []
