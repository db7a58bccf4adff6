"""Each extra, installed alone into a fresh environment from the wheel, has what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from spark_bull.ops.cli.status import PROBLEMS
from tests.conftest import need
from tests.support.wheel import CONSTRAINTS, build_wheel
from tools.matrix import NotRun, find_python

pytestmark = [pytest.mark.rest, pytest.mark.timeout(1_200)]

#: Runs a program of Python, or a command of the environment, with these arguments; returns what it has printed.
Run = Callable[..., str]
#: By extra: what needs it. `url` and `prefix` are of a Redis; `folder` is empty.
PROGRAMS = {
    "": """
        from spark_bull import BullQueue, LocalWorker
        with BullQueue("q", url=url, prefix=prefix, protocol="bullmq") as queue:
            job_id = queue.add({"n": 1})
            with LocalWorker("q", lambda job: 2 * job.data["n"], url=url, prefix=prefix, protocol="bullmq"):
                assert queue.wait(job_id) == 2
        from importlib.util import find_spec
        assert not any(map(find_spec, ("pyspark", "pyarrow", "pandas", "numpy")))
        for name in ("Worker", "register", "process_batch", "BullDataSource", "call", "write_results"):
            try:
                getattr(spark_bull, name)
            except spark_bull.SparkBullError as error:
                assert "found no pyspark, pyarrow, pandas: run `pip install 'spark-bull[spark]'`" in str(error)
            else:
                raise AssertionError(name)
    """,
    "local": """
        with spark_bull.EmbeddedRedis() as server, spark_bull.BullQueue("q", url=server.url) as queue:
            queue.add({})
            assert queue.counts()["wait"] == 1
            newest = sys.version_info >= (3, 11)
            assert server.server.startswith("Valkey 9." if newest else "Redis 6.2."), server.server
    """,
    "encrypt,offload": """
        import os
        os.environ["SECRET"] = "00" * 32
        sealed = {"encrypt_with": "a=env:SECRET", "offload_to": folder, "offload_above": 10}
        with spark_bull.BullQueue("q", url=url, prefix=prefix, protocol="bullmq", **sealed) as queue:
            assert queue.job(queue.add({"text": "long enough"})).data == {"text": "long enough"}
    """,
    "otel": """
        assert spark_bull.current_trace() == "{}"
        with spark_bull.BullQueue("q", url=url, prefix=prefix, protocol="bullmq", tracer=True) as queue:
            queue.add({})
    """,
    "web": """
        import threading, urllib.request
        from spark_bull.ops.web.server import WebServer
        from spark_bull.ops.web.settings import WebSettings
        listens, found = threading.Event(), []
        settings = WebSettings(url=url, prefix=prefix, port=0)
        server = WebServer(settings, lambda where: (found.append(where), listens.set()))
        threading.Thread(target=server.run, daemon=True).start()
        listens.wait()
        assert urllib.request.urlopen(f"{found[0]}/healthz").status == 200
    """,
    "spark": """
        assert spark_bull.Worker and spark_bull.BullDataSource and spark_bull.process_batch
        from pyspark_bull import DefaultSource
        assert DefaultSource.name() == "bull"
    """,
}
_BEGIN = "import sys, textwrap, spark_bull; url, prefix, folder, program = sys.argv[1:]; exec(textwrap.dedent(program))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Callable[[str, str], Run]:
    """Installs the wheel with an extra into a fresh environment of an interpreter, without a compiler on PATH."""

    def install(python: str, extra: str) -> Run:
        environment = tmp_path / "environment"
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
        variables = _without_compiler(environment / "bin", tmp_path / "tools")

        def run(*command: str, status: int = 0) -> str:
            program = [str(environment / "bin" / command[0]), *command[1:]]
            done = subprocess.run(program, capture_output=True, text=True, env=variables, cwd=tmp_path)
            assert done.returncode == status, done.stdout + done.stderr
            return done.stdout + done.stderr

        index = subprocess.run(
            [str(environment / "bin" / "pip"), "download", "--no-deps", "--dest", str(tmp_path), "msgpack"],
            capture_output=True,
            text=True,
        )
        need(index.returncode == 0, f"needs an index of packages: {index.stderr[-300:]}")
        wanted = f"spark-bull{extra and f'[{extra}]'} @ {wheel.as_uri()}"
        run("pip", "install", "--quiet", "--constraint", str(CONSTRAINTS), wanted)
        return run

    return install


def _without_compiler(scripts: Path, tools: Path) -> Mapping[str, str]:
    """The variables of a machine without a compiler, a server of Redis and packages of this checkout."""
    tools.mkdir()
    for name in ("sh", "rm", "uname", "env"):
        (tools / name).symlink_to(Path("/bin") / name if Path("/bin", name).exists() else Path("/usr/bin") / name)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CC", "SPARK_HOME")}
    return {**kept, "PATH": f"{scripts}:{tools}"}


@pytest.mark.parametrize(
    ("extra", "version"),
    [*((extra, None) for extra in PROGRAMS), ("local", "3.10"), ("local", "3.13")],
    ids=lambda value: value or "none",
)
def test_an_extra_has_what_it_promises(
    install: Callable[[str, str], Run], place: dict[str, str], tmp_path: Path, extra: str, version: str | None
) -> None:
    """Also the server with the oldest and the newest Python."""
    try:
        run = install(find_python(version) if version else sys.executable, extra)
    except NotRun as missing:
        pytest.skip(str(missing))
    (tmp_path / "objects").mkdir()
    run("python", "-c", _BEGIN, *place.values(), str(tmp_path / "objects"), PROGRAMS[extra])


def test_the_command_says_what_needs_spark(
    install: Callable[[str, str], Run], redis_url: str, prefix: str, tmp_path: Path
) -> None:
    run = install(sys.executable, "")
    command = ("spark-bull", "--url", redis_url, "--prefix", prefix)
    run(*command, "add", "mail", "{}")
    assert "wait" in run(*command, "counts", "mail")
    assert "no Spark here" in run(*command, "doctor", status=PROBLEMS)
    (tmp_path / "rows.json").write_text('{"n": 1}\n')
    said = run(*command, "dispatch", "--input", "rows.json", "--format", "json", "--queue", "q", status=1)
    assert "spark-bull dispatch: expected the packages of the extra `spark`, found no pyspark" in said
    assert "Traceback" not in said
