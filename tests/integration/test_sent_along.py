"""The package as a zip for --py-files: its contents, and that processes without the package can load its objects."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path
from subprocess import PIPE
from zipfile import ZipFile

import pytest
from pyspark.serializers import read_int, write_int, write_with_length
from pyspark.sql.streaming.python_streaming_source_runner import CHECK_SUPPORTED_FEATURES_ID, SUPPORTS_ADMISSION_CONTROL
from pyspark.sql.types import StringType, StructField, StructType

from spark_bull.spark.schemas import CLAIM_SCHEMA
from tests.support.spark_submit import bare_environment
from tools.build_zip import ROOT

SENDER = """
import sys
from pyspark.serializers import CPickleSerializer
sys.path.insert(1, sys.argv[1])
from spark_bull.spark.provider import BullDataSource
from pyspark.sql.datasource import CaseInsensitiveDict
options = CaseInsensitiveDict(option.split("=") for option in sys.argv[2:])
sys.stdout.buffer.write(CPickleSerializer().dumps(BullDataSource(options)))
"""
RECEIVER = """
import sys
from pyspark.serializers import CPickleSerializer
source = CPickleSerializer().loads(sys.stdin.buffer.read())
print(type(source).__name__, source.options["QUEUE"], source.schema().names[0], sys.modules["spark_bull"].__file__)
"""
#: Spark's process of a streaming source, with pipes instead of the socket.
SOURCE_PROCESS = """
import sys
from pyspark.sql.streaming.python_streaming_source_runner import main
main(sys.stdin.buffer, sys.stdout.buffer)
"""


def run(python: Path, folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    command = [str(python), *arguments]
    ran = subprocess.run(command, input=given, cwd=folder, env=bare_environment(python), capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout


def test_the_zip_holds_all_modules_scripts_and_the_licence_and_nothing_else(package_zip: Path) -> None:
    patterns = ["spark_bull/**/*.py", "spark_bull/__init__.pyi", "spark_bull/**/*.lua", "spark_bull/py.typed"]
    patterns += ["pyspark_bull/*.py", "LICENSE"]
    expected = {path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)}
    with ZipFile(package_zip) as archive:
        assert set(archive.namelist()) == expected


def test_a_process_without_the_package_can_load_the_data_source(
    package_zip: Path, foreign_python: Path, tmp_path: Path
) -> None:
    sent = run(foreign_python, tmp_path, "-c", SENDER, str(package_zip), "Queue=mail")
    got = run(foreign_python, tmp_path, "-c", RECEIVER, given=sent)
    assert got.decode().split() == ["BullDataSource", "mail", "queue", f"{package_zip}/spark_bull/__init__.py"]


@pytest.mark.parametrize("mode", ["collect", "claim"])
def test_the_process_of_a_streaming_source_creates_its_reader(
    package_zip: Path, foreign_python: Path, redis_url: str, prefix: str, tmp_path: Path, mode: str
) -> None:
    options = [f"url={redis_url}", f"prefix={prefix}", "queue=mail", *(["mode=claim"] if mode == "claim" else [])]
    sent = run(foreign_python, tmp_path, "-c", SENDER, str(package_zip), *options)
    stdin = BytesIO()
    # As Spark sends it: with a wrong folder `streaming_job`, so the zip is not found in it.
    for text in ("{}.{}".format(*sys.version_info), str(package_zip.parent / "streaming_job")):
        write_with_length(text.encode(), stdin)
    write_int(1, stdin)
    schema = CLAIM_SCHEMA if mode == "claim" else StructType([StructField("id", StringType())])
    for part in (package_zip.name.encode(), sent, schema.json().encode()):
        write_with_length(part, stdin)
    for number in (10_000, CHECK_SUPPORTED_FEATURES_ID):
        write_int(number, stdin)
    command = [str(foreign_python), "-c", SOURCE_PROCESS]
    # It ends with an error at the end of its input.
    ran = subprocess.run(
        command, input=stdin.getvalue(), cwd=tmp_path, env=bare_environment(foreign_python), stdout=PIPE
    )
    said = BytesIO(ran.stdout)
    assert read_int(said) == 0, said.read().decode(errors="replace")
    assert read_int(said) & SUPPORTS_ADMISSION_CONTROL
