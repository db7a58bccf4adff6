"""The dashboard and the alerts of conf/, in a real Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
from tests.integration.conftest import Run
from tests.integration.test_metrics_server import queries_for_keda, serving
from tests.support.network import new_listener
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import Finisher
from tests.unit.ops.prometheus.test_metrics import queries

TESTS = Path(__file__).with_name("alerts.yml")
RULES = Path(__file__).parents[2] / "conf" / "prometheus-alerts.yml"


#: The data of an answer of Prometheus to a path of its API and its parameters; None before it listens.
Ask = Callable[..., Any]


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[Ask]:
    """Runs a server with the rules of conf/ that scrapes `target`, such as 127.0.0.1:9090, each second."""
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "bull", "static_configs": [{"targets": [target]}]}],
    }
    # JSON is YAML, too.
    (folder / "prometheus.yml").write_text(json.dumps(settings), "utf-8")
    with new_listener() as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command.append(f"--web.listen-address={address}")

    def ask(path: str, **parameters: str) -> Any:
        with (
            suppress(URLError),
            urlopen(f"http://{address}/api/v1/{path}?{urlencode(parameters)}", timeout=PATIENCE_S) as answer,
        ):
            return json.load(answer)["data"]

    with (
        (folder / "prometheus.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            wait_until(lambda: ask("rules"), "Prometheus to answer")
            yield ask
        finally:
            process.terminate()


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
    client: Redis, queue: BullQueue, run: Run, tmp_path: Path
) -> None:
    finisher = Finisher(queue, client)
    finisher.finish(3)
    finisher.finish(1, "failed")
    queue.add_many([NewJob(n, name="send") for n in range(3)])
    asked = [*map(shown, queries()), *(compared(rule["expr"]) for rule in alerts().values()), *queries_for_keda()]
    with serving(*run.common) as url, prometheus(url.removeprefix("http://").partition("/")[0], tmp_path) as ask:
        for query in asked:
            wait_until(lambda query=query: ask("query", query=query)["result"], f"an answer to {query}")
        wait_until(lambda: health_of(ask) == dict.fromkeys(alerts(), "ok"), "all rules to be evaluated")


def health_of(ask: Ask) -> dict[str, str]:
    """The rules of a server, and whether their last evaluation succeeded."""
    return {rule["name"]: rule["health"] for group in ask("rules")["groups"] for rule in group["rules"]}


def shown(query: str) -> str:
    """A query of the dashboard as Grafana sends it."""
    values = re.fullmatch(r"label_values\((\w+), \w+\)", query)
    return values[1] if values else query.replace("$queue", ".*").replace("$__rate_interval", "1m")


def compared(expression: str) -> str:
    """The first series that the rule of an alert compares."""
    return re.split(r" (?:[<>]=?|==) ", expression)[0]
