"""Hosts on one bridge: a network namespace each. All of it ends with the process that holds it.

The holder is the first process of its PID namespace. When it ends, the kernel ends its processes, and with them their
namespaces, the interfaces and the mounted files.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from tests.support.wait import wait_until

#: The holder's folder, a file system in memory that only its processes see.
FOLDER: Final = Path("/mnt")
HOLDER: Final = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_NETWORK: Final = "10.99.0"
HOLDER_ADDRESS: Final = f"{_NETWORK}.1"
WORKERS: Final = ("worker1", "worker2")
NAMES: Final = ("redis", "driver", *WORKERS)
LOST: Final = ("-j", "DROP")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


@dataclass
class Host:
    """A namespace that a process of its own keeps."""

    name: str
    number: int
    keeper: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        wait_until(lambda: self.namespace != os.readlink("/proc/self/ns/net"), f"the namespace of {self.name}")
        run("ip", "link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", str(self.keeper.pid))
        run("ip", "link", "set", self.name, "master", "bridge", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    @property
    def address(self) -> str:
        return f"{_NETWORK}.{self.number}"

    @property
    def namespace(self) -> str:
        return os.readlink(f"/proc/{self.keeper.pid}/ns/net")

    @property
    def clock_ahead(self) -> Path:
        """While there is this file, the clock of Python on this host is wrong: see clock_ahead.py."""
        return FOLDER / f"ahead.{self.address}"

    def _entered(self, command: tuple[str, ...]) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.keeper.pid}/ns/net", *command]

    def run(self, *command: str) -> None:
        run(*self._entered(command))

    def start(self, *command: str, log: Path, environment: Mapping[str, str], prints: int | None = None) -> Process:
        """Starts a program. prints: subprocess.PIPE for its output, which otherwise goes into the log, too."""
        with log.open("ab") as file:
            where: int | IO[bytes] = file if prints is None else prints
            own = {**environment, "SPARK_LOCAL_IP": self.address}
            return subprocess.Popen(self._entered(command), env=own, stdout=where, stderr=file, cwd=FOLDER)

    @contextmanager
    def cut_from(self, other: Host) -> Iterator[None]:
        """Packets to and from the other host get lost."""
        with self.rule("INPUT", "-s", other.address, *LOST), self.rule("OUTPUT", "-d", other.address, *LOST):
            yield

    @contextmanager
    def rule(self, chain: str, *rule: str, table: str = "filter") -> Iterator[None]:
        """A rule of iptables."""
        self.run("iptables", "-w", "-t", table, "-A", chain, *rule)
        try:
            yield
        finally:
            self.run("iptables", "-w", "-t", table, "-D", chain, *rule)

    def lost(self) -> int:
        """How many packets rules have dropped."""
        command = self._entered(("iptables", "-w", "-nvxL"))
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        return sum(int(line.split()[0]) for line in lines if "DROP" in line.split())

    def power_off(self) -> None:
        """Nobody hears of it: all processes end when the network has gone."""
        self.run("ip", "link", "set", "eth0", "down")
        assert self.kill(""), f"expected processes on {self.name}"

    def power_on(self) -> None:
        self.run("ip", "link", "set", "eth0", "up")

    def kill(self, word: str) -> int:
        """Kills the processes of this host with a word in their commands, with SIGKILL; returns how many."""
        found = 0
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                is_here = os.readlink(process / "ns" / "net") == self.namespace and process.name != str(self.keeper.pid)
                if is_here and word in (process / "cmdline").read_text():
                    os.kill(int(process.name), signal.SIGKILL)
                    found += 1
        return found


Process = subprocess.Popen[bytes]


def start_hosts() -> dict[str, Host]:
    """Starts all hosts, which know each other by name. Needs a process of HOLDER."""
    run("mount", "-t", "tmpfs", "hosts", str(FOLDER))
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "bridge", "type", "bridge")
    run("ip", "address", "add", f"{HOLDER_ADDRESS}/24", "dev", "bridge")
    run("ip", "link", "set", "bridge", "up")
    hosts = {name: Host(name, number) for number, name in enumerate(NAMES, 10)}
    lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in hosts.values())]
    names = FOLDER / "hosts"
    names.write_text("\n".join(lines) + "\n")
    run("mount", "--bind", str(names), "/etc/hosts")
    return hosts
