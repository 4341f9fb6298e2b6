"""The alert rules and the dashboard of tools/monitoring."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trustme
from server.metrics.scrape import watched

from beanstalkd_py.server.metrics.replication_metrics import replication_metrics
from beanstalkd_py.server.process.messages import ReplicatorStatus

MONITORING = Path(__file__).parents[3] / "tools/monitoring"
RULES = MONITORING / "alerts.yml"
RULE_TESTS = Path(__file__).with_name("alerts_test.yml")
NAME = re.compile(r"\bbeanstalkd_\w+")


def promtool(*args: str | Path) -> str:
    done = subprocess.run(["promtool", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def queries(panels: list[dict[str, Any]]) -> list[str]:
    """Return the expressions of all panels."""
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def dashboard_queries() -> list[str]:
    found = dashboard()
    annotations = [one["expr"] for one in found["annotations"]["list"]]
    variables = [one["definition"] for one in found["templating"]["list"] if "definition" in one]
    return [*queries(found["panels"]), *annotations, *variables]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return all metric names of a server with all limits, TLS, a history and a schedule."""
    folder = tmp_path_factory.mktemp("certificates")
    issued = trustme.CA().issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    files = [f"--tls-{name}={folder}/both.pem" for name in ("cert", "key")]
    limits = ("--max-connections=100", "--max-memory=1M", "--max-tubes=100")
    tls = ("--tls-listen=127.0.0.1:0", *files)
    binlog = tmp_path_factory.mktemp("binlog")
    history = (f"-b{binlog}", f"--history={tmp_path_factory.mktemp('history')}")
    schedules = tmp_path_factory.mktemp("schedules") / "beanstalkd-py.toml"
    schedules.write_text('[schedule.nightly]\ncron = "0 2 * * *"\ntube = "reports"\n')
    everything = ("--workers=2", *limits, *tls, *history, f"--config={schedules}")
    with watched(*everything) as server, server.server.connect() as client:
        client.put()
        replicated = replication_metrics(ReplicatorStatus(epoch=1))
        samples = {sample.name for one in replicated for sample in one.samples}
        return server.scrape().names | samples


def test_promtool_accepts_the_rules() -> None:
    alerts = RULES.read_text().count("- alert:")
    assert f"{alerts} rules found" in promtool("check", "rules", RULES)


@pytest.mark.slow
def test_each_alert_fires() -> None:
    promtool("test", "rules", RULE_TESTS)


def test_each_alert_has_a_firing_and_a_quiet_test() -> None:
    reported = RULE_TESTS.read_text()
    for alert in re.findall(r"- alert: (\w+)", RULES.read_text()):
        assert f"- alertname: {alert}\n" in reported, f"{alert} never fires in a test"
        assert f"{{alertname: {alert}, " in reported, (
            f"{alert} has no test in which it does not fire"
        )


def test_each_alert_has_a_summary_and_a_description() -> None:
    text = RULES.read_text()
    for part in ("summary:", "description:", "severity:"):
        assert text.count(part) == text.count("- alert:")


@pytest.mark.costly
def test_rules_use_existing_metrics(names: set[str]) -> None:
    used = {name for line in expressions() for name in NAME.findall(line)}
    assert used and used <= names


def expressions() -> list[str]:
    """Return the lines of the rules without their texts."""
    rules = re.split(r"- alert:", RULES.read_text())[1:]
    return [re.sub(r"(?s)annotations:.*", "", rule) for rule in rules]


def test_the_dashboard_uses_existing_metrics(names: set[str]) -> None:
    used = {name for query in dashboard_queries() for name in NAME.findall(query)}
    assert len(used) > 20 and used <= names


def test_every_metric_is_in_the_dashboard_or_an_alert(names: set[str]) -> None:
    """Except for those that are better shown elsewhere."""
    text = " ".join([*dashboard_queries(), *expressions()])
    left_out = {
        "beanstalkd_instance_info",
        "beanstalkd_urgent_jobs",
        "beanstalkd_tube_urgent_jobs",
        "beanstalkd_tube_pause_seconds",
        "beanstalkd_tube_pauses_total",
        "beanstalkd_max_job_size_bytes",
        "beanstalkd_binlog_max_file_size_bytes",
        "beanstalkd_binlog_oldest_index",
        "beanstalkd_binlog_current_index",
        "beanstalkd_connections_accepted_total",
        "beanstalkd_connections_moved_out_total",
        "beanstalkd_tubes_limit",
    }
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
    assert {name for name in bases if name not in text} == left_out


def test_the_dashboard_is_valid() -> None:
    """Every panel uses the selected data source and has its own position."""
    found = dashboard()
    assert found["schemaVersion"] >= 38
    assert [one["name"] for one in found["templating"]["list"]] == ["datasource", "instance"]
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert panel["targets"], panel["title"]


def test_every_query_is_valid(tmp_path: Path) -> None:
    """Promtool checks the queries as rules."""
    rules = [
        {"record": f"query:{number}", "expr": filled(query)}
        for number, query in enumerate(dashboard_queries())
        if not query.startswith("label_values")
    ]
    path = tmp_path / "queries.yml"
    # JSON is YAML.
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", path)


def filled(query: str) -> str:
    """Return the expression with Grafana's variables replaced."""
    return query.replace("$__rate_interval", "5m").replace("$instance", ".+")
