"""The Dockerfile, and what conf/ has for containers: it runs as its files say, and SIGTERM ends it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from spark_bull import BullQueue, EmbeddedRedis
from spark_bull.ops.cli.main import parser
from spark_bull.ops.web.problems import ALIVE, READY
from tests.integration.containers import IMAGE, Container, Engine, build_image, own_engine
from tests.support.network import UNUSED_PORT
from tests.support.node import NODE_DIRECTORY
from tests.support.wait import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]
COMPOSE, KUBERNETES = ROOT / "conf" / "compose.yaml", ROOT / "conf" / "kubernetes.yaml"
TOKEN = "0123456789abcdef"
#: A container whose image has no other user, cannot write, and has no right of root.
HARDENED = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
MODULE = """
import time

def send(job):
    print("began", job.id)
    time.sleep(job.data["seconds"])
"""


@dataclass(frozen=True)
class Service:
    """A container of our image: its arguments, the ports on which others reach it, the paths and the command that ask
    whether it is healthy, and the options of `docker run` for what its file says else."""

    arguments: Sequence[str]
    ports: Sequence[int]
    probes: Sequence[str]
    health: Sequence[str]
    options: Sequence[str]


def of_compose() -> Iterator[Service]:
    for service in yaml.safe_load(COMPOSE.read_text("utf-8"))["services"].values():
        if service.get("image") != IMAGE:
            continue
        health = service["healthcheck"]["test"][1:] if "healthcheck" in service else []
        options = [
            *(["--init"] if service["init"] else []),
            *(["--read-only"] if service["read_only"] else []),
            *(f"--cap-drop={name}" for name in service["cap_drop"]),
            *(f"--security-opt={name.removesuffix(':true')}" for name in service["security_opt"]),
        ]
        ports = [int(port.rpartition(":")[2]) for port in service.get("ports", ())]
        yield Service(service["command"], ports, re.findall(r"(/\w+)'", " ".join(health)), health, options)


def of_kubernetes() -> Iterator[Service]:
    for pod in (one["spec"]["template"]["spec"] for one in resources("Deployment")):
        [container] = pod["containers"]
        restricted = container["securityContext"]
        options = [
            *([f"--user={pod['securityContext']['runAsUser']}"] if pod["securityContext"]["runAsNonRoot"] else []),
            *(["--read-only"] if restricted["readOnlyRootFilesystem"] else []),
            *(f"--cap-drop={name}" for name in restricted["capabilities"]["drop"]),
            *([] if restricted["allowPrivilegeEscalation"] else ["--security-opt=no-new-privileges"]),
        ]
        ports = [port["containerPort"] for port in container.get("ports", ())]
        probes = [probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")]
        yield Service(container["args"], ports, probes, [], options)


def resources(kind: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(KUBERNETES.read_text("utf-8")) if one["kind"] == kind]


FILES: Mapping[str, Callable[[], Iterator[Service]]] = {"compose": of_compose, "kubernetes": of_kubernetes}
each_file = pytest.mark.parametrize("file", FILES)


@each_file
def test_the_services_of_a_file_are_commands_that_listen_on_their_ports(file: str) -> None:
    found = {}
    for service in FILES[file]():
        args = parser().parse_args(service.arguments)
        listens = getattr(args, "listen", None)
        assert ([listens] if listens else []) == [("0.0.0.0", port) for port in service.ports]
        assert {*HARDENED} <= {*service.options}
        found[args.command] = {*service.probes}
    with_health = {ALIVE} if file == "kubernetes" else set()
    assert found == {"promote": set(), "serve": {READY, *with_health}, "metrics": with_health}


def test_what_the_resources_of_kubernetes_name_is_there() -> None:
    ports, secrets = {}, set()
    for one in resources("Deployment"):
        labels = one["spec"]["template"]["metadata"]["labels"]
        [container] = one["spec"]["template"]["spec"]["containers"]
        assert one["spec"]["selector"]["matchLabels"] == labels
        ports[labels["app"]] = {port["name"] for port in container.get("ports", ())}
        probes = {probe["httpGet"]["port"] for name, probe in container.items() if name.endswith("Probe")}
        assert probes == ports[labels["app"]]
        secrets |= {one["secretRef"]["name"] for one in container["envFrom"]}
    for one in resources("Service"):
        [port] = one["spec"]["ports"]
        assert port["targetPort"] in ports[one["spec"]["selector"]["app"]]
    made = re.findall(r"kubectl create secret generic (\S+)", page())
    assert secrets == {*(one["metadata"]["name"] for one in resources("Secret")), *made}


def page() -> str:
    return (ROOT / "docs" / "platforms" / "containers.md").read_text("utf-8")


def test_the_compose_file_is_one() -> None:
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("needs `docker compose`")
    command = ["env", f"SPARK_BULL_WRITE_TOKEN={TOKEN}", "docker", "compose", "--file", str(COMPOSE), "config"]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    contexts = {Path(service["build"]["context"]) for service in services.values() if "build" in service}
    assert all((context / "Dockerfile").exists() for context in contexts)


@pytest.mark.interop
def test_the_worker_of_node_works_and_ends(own_redis: Callable[[], EmbeddedRedis], tmp_path: Path) -> None:
    worker = (ROOT / "conf" / "node-worker" / "worker.js").read_text("utf-8")
    (tmp_path / "worker.js").write_text(worker.replace("'bullmq'", "'bullmq-6.7.0'"))
    (tmp_path / "node_modules").symlink_to(NODE_DIRECTORY / "node_modules")
    url = own_redis().url
    command = ["env", f"SPARK_BULL_URL={url}", str(shutil.which("node")), str(tmp_path / "worker.js")]
    with BullQueue("mail", url=url, protocol="bullmq") as queue, subprocess.Popen(command) as process:
        try:
            assert queue.wait(queue.add({"to": "ada@example.org"})) == {"sent": "ada@example.org"}
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that has the image."""
    with own_engine() as engine:
        build_image(engine, tmp_path_factory.mktemp("image"))
        yield engine


@pytest.mark.rest
@each_file
def test_services_run_as_their_file_says_and_end_with_sigterm(
    engine: Engine, own_redis: Callable[[], EmbeddedRedis], file: str
) -> None:
    url = own_redis().url
    environment = {"SPARK_BULL_URL": url, "SPARK_BULL_WRITE_TOKEN": TOKEN}
    with ExitStack() as started, BullQueue("mail", url=url, protocol="bullmq") as queue:
        queue.add({}, delay=1)
        running = []
        for service in FILES[file]():
            arguments = [re.sub(r"^:\d+$", ":0", one) for one in service.arguments]
            container = started.enter_context(Container(engine, arguments, environment, service.options))
            running.append(container)
            if not service.ports:
                continue
            address = f"127.0.0.1:{container.says(r'listening on http://0.0.0.0:([0-9]+)')[0]}"
            for path in service.probes:
                assert urlopen(f"http://{address}{path}", timeout=PATIENCE_S).status == 200
            if service.health:
                container.execute(*(one.replace(f"127.0.0.1:{service.ports[0]}", address) for one in service.health))
        wait_until(lambda: queue.counts()["wait"] == 1, "the job to be promoted")
        assert [container.stop() for container in running] == [0] * len(running)


@pytest.mark.rest
def test_the_image_has_the_notebooks(engine: Engine) -> None:
    copied = engine("run", "--rm", "--network=none", "--user=0", IMAGE, "notebooks").split()
    assert [Path(one).name for one in copied] == sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def of_my_jobs(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Builds the image `my-jobs` of the page with MODULE; returns the arguments of its command."""
    [described] = re.findall(r"^```dockerfile\n(.*?)^```$", page(), re.DOTALL | re.MULTILINE)
    folder = tmp_path_factory.mktemp("my_jobs")
    (folder / "my_jobs.py").write_text(MODULE)
    (folder / "Dockerfile").write_text(described)
    engine("build", "--network", "host", "--tag", "my-jobs", str(folder))
    command: list[str] = json.loads(described.rpartition("CMD ")[2])
    return command


@pytest.mark.rest
@pytest.mark.parametrize("slots", [[], ["--processes"]], ids=["threads", "processes"])
def test_a_worker_returns_its_job_when_its_container_stops(
    engine: Engine, of_my_jobs: list[str], own_redis: Callable[[], EmbeddedRedis], slots: list[str]
) -> None:
    url = own_redis().url
    arguments = [*(one.replace("20s", "1s") for one in of_my_jobs), *slots]
    with (
        BullQueue("mail", url=url, protocol="bullmq") as queue,
        Container(engine, arguments, {"SPARK_BULL_URL": url}, HARDENED, image="my-jobs") as container,
    ):
        assert queue.wait(queue.add({"seconds": 0})) is None
        held = queue.add({"seconds": 2 * PATIENCE_S})
        container.says(f"began {held}")
        assert container.stop() == 0
        assert queue.counts()["wait"] == 1


@pytest.mark.rest
def test_the_image_is_not_of_root_and_prints_help_and_a_command_that_waits_ends_with_sigterm(engine: Engine) -> None:
    assert engine("inspect", "--format", "{{.Config.User}}", IMAGE) == "10001:10001"
    assert engine("run", "--rm", "--network=none", *HARDENED, IMAGE).startswith("spark-bull COMMAND")
    unreachable = {"SPARK_BULL_URL": f"redis://127.0.0.1:{UNUSED_PORT}"}
    with Container(engine, ["counts", "mail"], unreachable, HARDENED) as container:
        container.says("waiting for Redis")
        assert container.stop() == 128 + signal.SIGTERM
