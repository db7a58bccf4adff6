"""A container engine of a test's own, a base image of the running Python, and the image of the Dockerfile on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.wait import PATIENCE_S, wait_until
from tests.support.wheel import CONSTRAINTS, ROOT, build_wheel

BASE: Final = "python-of-the-test"
IMAGE: Final = "spark-bull"
#: Parts of the standard library that no program needs.
_LEFT_OUT: Final = frozenset({"site-packages", "test", "idlelib", "tkinter"})
#: Libraries of C that wheels find on each Linux, beside those that Python itself needs.
_OF_WHEELS: Final = ("pthread", "dl", "rt", "util", "resolv", "nss_files", "nss_dns", "gcc_s", "stdc++")

_OWN_NAMESPACES: Final = [
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"),
]


class Engine:
    """Runs `docker` with the arguments; returns what it has printed."""

    def __init__(self, socket: Path) -> None:
        self._begin = ["docker", "--host", f"unix://{socket}"]
        # The other builder is a plugin, which may be missing.
        self._environment = os.environ | {"DOCKER_BUILDKIT": "0"}

    def __call__(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done.stdout[-3_000:])
        return done.stdout.strip()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command, both = [*self._begin, *arguments], subprocess.STDOUT
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=both, text=True, env=self._environment)


@contextmanager
def own_engine() -> Iterator[Engine]:
    """Starts dockerd with a socket and folders of its own, and without networks. Skips the test where none starts.

    Its processes and mounts are in namespaces of their own, which end with this program, also if it is killed.
    """
    if os.geteuid() != 0 or not all(map(shutil.which, ("setpriv", "unshare", "dockerd", "docker"))):
        pytest.skip("needs root, Linux, `dockerd` and `docker`")
    with tempfile.TemporaryDirectory(prefix="spark-bull-engine-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        places = {"host": f"unix://{folder}/socket", "pidfile": folder / "pid"}
        places |= {"data-root": folder / "data", "exec-root": folder / "exec"}
        command = [*_OWN_NAMESPACES, "dockerd", "--bridge=none", "--iptables=false", "--ip-forward=false"]
        command += [f"--{option}={value}" for option, value in places.items()]
        engine = Engine(folder / "socket")
        with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                wait_until(lambda: process.poll() is not None or not engine.run("version").returncode, "the engine")
                if process.poll() is not None:
                    pytest.skip(f"needs dockerd to start: {(folder / 'log').read_text()[-300:]}")
                yield engine
                for container in engine("ps", "--all", "--quiet").split():
                    engine("rm", "--force", container)
            finally:
                process.kill()
                process.wait(PATIENCE_S)


def build_image(engine: Engine, folder: Path) -> None:
    """Builds the Dockerfile of this checkout as IMAGE, without a registry of images.

    `folder`: an empty one, for the wheels of what the image needs, which pip finds in the base image.
    """
    [extras] = re.findall(r"^ARG EXTRAS=(.+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    wheels = folder / "wheels"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--constraint", str(CONSTRAINTS)]
    download += ["--dest", str(wheels), "setuptools>=77"]
    wanted = f"spark-bull[{extras}] @ {build_wheel(folder).as_uri()}"
    done = subprocess.run([*download, wanted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs an index of packages: {done.stderr[-300:]}")
    _import_base(engine, folder / "base.tar", wheels)
    given = {"BASE": BASE, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    arguments = [f"--build-arg={name}={value}" for name, value in given.items()]
    engine("build", "--network=none", *arguments, "--tag", IMAGE, str(ROOT))


def _import_base(engine: Engine, file: Path, wheels: Path) -> None:
    """Makes the image BASE of the Python that runs this test, the libraries of C that it needs, a shell, and wheels."""
    python, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    programs = [python, Path("/bin/sh").resolve()]
    listed = subprocess.run(
        ["ldd", *map(str, programs), *map(str, library.glob("lib-dynload/*.so"))], capture_output=True, text=True
    )
    libraries = {Path(found) for found in re.findall(r"(/\S+) \(0x", listed.stdout)}
    [of_c] = {one.parent for one in libraries if one.name.startswith("libc.so")}
    libraries |= {one for name in _OF_WHEELS for one in of_c.glob(f"lib{name}.so.[0-9]")}
    with tarfile.open(file, "w") as tar:
        for one in sorted(libraries):
            tar.add(one.resolve(), str(one), filter=_readable)
        for one in (*programs, library, wheels):
            tar.add(one, filter=_readable)
        for name, target in {"bin/sh": programs[1], "usr/local/bin/python3": python}.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, str(target)
            if name != str(target).lstrip("/"):
                tar.addfile(link)
    engine("import", "--change", "ENV PATH=/usr/local/bin:/usr/bin:/bin", str(file), BASE)


def _readable(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """The member of an archive, readable for all; None for what is left out."""
    if _LEFT_OUT & {*Path(member.name).parts}:
        return None
    member.uid = member.gid = 0
    member.mode |= 0o555 if member.isdir() else 0o444
    return member


class Container:
    """A container on the network of this machine, while the block runs."""

    def __init__(
        self,
        engine: Engine,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        options: Sequence[str] = (),
        *,
        image: str = IMAGE,
    ) -> None:
        self._engine = engine
        given = [f"--env={name}={value}" for name, value in environment.items()]
        self._id = engine("run", "--detach", "--network=host", *options, *given, image, *arguments).splitlines()[-1]

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine("rm", "--force", self._id)

    def says(self, pattern: str) -> list[str]:
        """Waits until it has printed something that matches; returns what `re.findall` does."""

        def found() -> list[str]:
            printed = self._engine("logs", self._id)
            matches = re.findall(pattern, printed)
            assert matches or self._engine("inspect", "--format", "{{.State.Running}}", self._id) == "true", printed
            return matches

        return wait_until(found, pattern)

    def execute(self, *command: str) -> str:
        return self._engine("exec", self._id, *command)

    def stop(self) -> int:
        """Sends SIGTERM, and SIGKILL if it does not help; returns the exit status, 137 after SIGKILL."""
        self._engine("stop", "--time", f"{PATIENCE_S:.0f}", self._id)
        return int(self._engine("inspect", "--format", "{{.State.ExitCode}}", self._id))
