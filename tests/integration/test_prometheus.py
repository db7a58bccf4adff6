"""The dashboard and the alerts of conf/, in a real Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from redis import Redis

from spark_bull import BullQueue, NewJob
from tests.conftest import need
from tests.integration.test_metrics_server import queries_for_keda, serving
from tests.support.network import new_listener
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import Finisher
from tests.unit.ops.prometheus.test_metrics import queries

TESTS = Path(__file__).with_name("alerts.yml")
RULES = Path(__file__).parents[2] / "conf" / "prometheus-alerts.yml"


class Prometheus:
    """A server at `url`, with the rules of conf/."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the API."""
        with urlopen(f"{self._url}/api/v1/{path}?{urlencode(parameters)}", timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression, now."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[Prometheus]:
    """Runs a server that scrapes `target`, such as 127.0.0.1:9090, each second."""
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "bull", "static_configs": [{"targets": [target]}]}],
    }
    # JSON is YAML, too.
    (folder / "prometheus.yml").write_text(json.dumps(settings), "utf-8")
    with new_listener() as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (
        (folder / "prometheus.log").open("w") as log,
        subprocess.Popen(
            ["prometheus", *arguments, f"--web.listen-address={address}"], stdout=log, stderr=log
        ) as process,
    ):
        try:
            server = Prometheus(f"http://{address}")
            wait_until(lambda: _answers(server), "Prometheus to answer")
            yield server
        finally:
            process.terminate()


def _answers(server: Prometheus) -> bool:
    try:
        server.ask("rules")
    except URLError:
        return False
    return True


@pytest.fixture(autouse=True)
def installed() -> None:
    installed = all(map(shutil.which, ("prometheus", "promtool")))
    need(installed, "needs prometheus and promtool: run `tools/ensure-tools.sh prometheus`")


def alerts() -> dict[str, dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_each_alert_fires_when_it_should_and_rests_when_it_should_not() -> None:
    cases = yaml.safe_load(TESTS.read_text("utf-8"))["tests"]
    checked = [check for case in cases for check in case["alert_rule_test"]]
    fires = {check["alertname"] for check in checked if check.get("exp_alerts")}
    rests = {check["alertname"] for check in checked if not check.get("exp_alerts")}
    assert fires == rests == set(alerts())
    run = subprocess.run(["promtool", "test", "rules", str(TESTS)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_queries_of_the_dashboard_the_rules_and_keda_have_answers_in_prometheus(
    client: Redis, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    with BullQueue("mail", url=redis_url, prefix=prefix, protocol="bullmq") as queue:
        finisher = Finisher(queue, client, twice=False)
        finisher.finish(3)
        finisher.finish(1, "failed")
        queue.add_many([NewJob(n, name="send") for n in range(3)])
        with serving(redis_url, prefix) as url:
            target = url.removeprefix("http://").partition("/")[0]
            with prometheus(target, tmp_path) as server:
                asked = [*map(shown, queries()), *(compared(rule["expr"]) for rule in alerts().values())]
                asked += queries_for_keda()
                for query in asked:
                    wait_until(lambda query=query: server.query(query), f"an answer to {query}")
                wait_until(lambda: health_of(server) == dict.fromkeys(alerts(), "ok"), "all rules to be evaluated")


def health_of(server: Prometheus) -> dict[str, str]:
    """The rules of a server, and whether their last evaluation succeeded."""
    return {rule["name"]: rule["health"] for group in server.ask("rules")["groups"] for rule in group["rules"]}


def shown(query: str) -> str:
    """A query of the dashboard as Grafana sends it."""
    values = re.fullmatch(r"label_values\((\w+), \w+\)", query)
    return values[1] if values else query.replace("$queue", ".*").replace("$__rate_interval", "1m")


def compared(expression: str) -> str:
    """The first series that the rule of an alert compares."""
    return re.split(r" (?:[<>]=?|==) ", expression)[0]
