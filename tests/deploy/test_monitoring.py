"""The alert rules and the dashboard: valid PromQL, metrics and labels that exist, alerts that fire when they should."""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its type hints are a separate package

from listings.telemetry.logs import RequestLine
from listings.telemetry.metrics import Metrics
from listings.workers.metrics_sum import build_worker_metrics
from tests.processes import run_program

pytestmark = pytest.mark.uncovered

HOME = Path(__file__).parent.parent.parent
RULES_FILE = HOME / "deploy" / "prometheus-alerts.yml"
RULES = yaml.safe_load(RULES_FILE.read_text("utf-8"))["groups"][0]["rules"]
DASHBOARD = json.loads((HOME / "deploy" / "grafana.json").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
TARGET_LABELS = {"job", "instance"}  # Prometheus adds them

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")

HEALTHY = {
    "up": "1",
    'listings_requests_total{status="200"}': "0+6000x60",
    'listings_requests_total{status="500"}': "0+6x60",
    "listings_write_batches_failed_total": "0",
    "listings_worker_deaths_total": "0+0x30 1+0x30",
    "listings_writes_waiting": "512",
    'listings_request_duration_seconds_bucket{route="/healthz", le="0.25"}': "0+6000x60",
    'listings_request_duration_seconds_bucket{route="/healthz", le="+Inf"}': "0+6000x60",
    'listings_request_duration_seconds_bucket{route="/api/v1/changes", le="0.25"}': "0x60",
    'listings_request_duration_seconds_bucket{route="/api/v1/changes", le="+Inf"}': "0+6000x60",
    "listings_connections": "8000",
    "listings_connections_max": "10000",
    "listings_database_wal_bytes": "268435456",
    "listings_rate_limit_away": "0",
    'listings_mails_total{outcome="sent"}': "0+1x60",
    'listings_mails_total{outcome="given_up"}': "0",
    "listings_rate_limited_total": "0+60x60",
    'listings_ready{reason=""}': "1",
    "listings_disk_free_bytes": "1073741824",
    "process_start_time_seconds": "0",
    "listings_last_backup_timestamp_seconds": "0",
    'listings_database_sessions{state="in_use"}': "5",
    'listings_database_sessions{state="waiting"}': "0",
    "listings_mail_oldest_timestamp_seconds": "0",
    "listings_market_lag_seconds": "300",
}
"""Series with values that must not cause an alert, one value a minute. A single value stays the same."""

UNHEALTHY = HEALTHY | {
    "up": "0",
    'listings_requests_total{status="500"}': "0+120x60",
    "listings_write_batches_failed_total": "0+1x60",
    "listings_worker_deaths_total": "0+1x60",
    "listings_writes_waiting": "513",
    'listings_request_duration_seconds_bucket{route="/healthz", le="0.25"}': "0+5880x60",
    'listings_request_duration_seconds_bucket{route="/healthz", le="1"}': "0+6000x60",
    "listings_connections": "8001",
    "listings_database_wal_bytes": "268435457",
    "listings_rate_limit_away": "1",
    'listings_mails_total{outcome="given_up"}': "0+1x60",
    "listings_rate_limited_total": "0+61x60",
    'listings_ready{reason="The disk is almost full"}': "0",
    "listings_disk_free_bytes": "1073741823",
    "listings_last_backup_timestamp_seconds": "-200000x60",
    'listings_database_sessions{state="waiting"}': "1",
    "listings_mail_oldest_timestamp_seconds": "-3600x60",
    "listings_market_lag_seconds": "301",
}
NEVER_BACKED_UP = HEALTHY | {"process_start_time_seconds": "-200000x60"}


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """The labels of each series that the service exposes."""
    metrics = Metrics(tmp_path_factory.mktemp("metrics") / "listings.db", lambda: None)
    metrics.record_state("", 0, 0, 0)
    metrics.record_response(RequestLine(method="GET", route="/healthz", status=200))
    families = [*metrics.report(), *build_worker_metrics(2, 0)]
    labels: dict[str, set[str]] = {"up": set()}
    for sample in (sample for family in families for sample in family.samples):
        labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def iterate_selectors(query: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each series that a query selects, with the labels in its braces."""
    for name, matchers in re.findall(r"\b((?:listings|process|python)_\w+|up\b)(?:\{([^}]*)\})?", query):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))


def run_promtool(folder: Path, command: str, content: Any) -> None:
    """Check a file with promtool. JSON is YAML."""
    file = folder / "checked.yml"
    file.write_text(json.dumps(content), "utf-8")
    run("promtool", command, "rules", str(file))


def run(*command: str) -> None:
    outcome = run_program(command)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize("queries", [[rule["expr"] for rule in RULES], QUERIES], ids=["alerts", "dashboard"])
def test_queries_use_only_metrics_and_labels_that_exist(queries: list[str], exposed: Mapping[str, set[str]]) -> None:
    for query in queries:
        selectors = list(iterate_selectors(query))
        assert selectors, query
        for name, labels in selectors:
            assert name in exposed, query
            assert labels <= exposed[name] | TARGET_LABELS, query
        kept = {label for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(", ")}
        assert kept <= set.union(*(exposed[name] for name, _ in selectors)), query


def test_the_dashboard_shows_every_metric_of_ours(exposed: Mapping[str, set[str]]) -> None:
    names = {name for name in exposed if name.startswith("listings_")}
    shown = {name for query in QUERIES for name, _ in iterate_selectors(query)}
    assert {strip_suffix(name) for name in names} <= {strip_suffix(name) for name in shown}


def strip_suffix(name: str) -> str:
    """Return the metric to which a series belongs."""
    return re.sub("_(bucket|sum|count)$", "", name)


def test_every_alert_is_documented_with_its_severity() -> None:
    page = (HOME / "docs" / "metrics.md").read_text("utf-8")
    documented = dict(re.findall(r"^\| (critical|warning|info) \| (.*) \|$", page, re.MULTILINE))
    for severity, names in documented.items():
        alerts = [f"`{rule['alert']}`" for rule in RULES if rule["labels"]["severity"] == severity]
        assert names == ", ".join(alerts)
    assert {rule["labels"]["severity"] for rule in RULES} == set(documented)


def test_every_alert_is_in_the_runbook() -> None:
    runbook = (HOME / "docs" / "runbook.md").read_text("utf-8")
    assert re.findall(r"^## (.*)$", runbook, re.MULTILINE) == [rule["alert"] for rule in RULES]


@needs_promtool
def test_the_queries_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    queries = [query.replace("$__rate_interval", "5m") for query in QUERIES]
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(queries)]
    run_promtool(tmp_path, "check", {"groups": [{"name": "dashboard", "rules": rules}]})


@needs_promtool
@pytest.mark.parametrize(
    ("series", "firing"),
    [(HEALTHY, 0), (UNHEALTHY, len(RULES)), (NEVER_BACKED_UP, 1)],
    ids=["healthy", "unhealthy", "never backed up"],
)
def test_alerts_fire_only_beyond_their_thresholds(series: Mapping[str, str], firing: int, tmp_path: Path) -> None:
    inputs = [{"series": add_target(name), "values": expand(values)} for name, values in series.items()]
    query = {
        "expr": 'count(ALERTS{alertstate="firing"}) or vector(0)',
        "eval_time": "50m",
        "exp_samples": [{"labels": "{}", "value": firing}],
    }
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": [query]}
    run_promtool(tmp_path, "test", {"rule_files": [str(RULES_FILE)], "evaluation_interval": "1m", "tests": [test]})


@needs_promtool
def test_the_documented_configuration_is_valid(tmp_path: Path) -> None:
    page = (HOME / "docs" / "metrics.md").read_text("utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "prometheus.yml").write_text(block, "utf-8")
    shutil.copy(RULES_FILE, tmp_path)
    run("promtool", "check", "config", str(tmp_path / "prometheus.yml"))
    jobs = {config["job_name"] for config in yaml.safe_load(block)["scrape_configs"]}
    assert {f'up{{job="{job}"}} == 0' for job in jobs} == {RULES[0]["expr"]}


def add_target(series: str) -> str:
    name, _, labels = series.partition("{")
    return f'{name}{{job="listings", instance="a:9464"{", " + labels if labels else "}"}'


def expand(values: str) -> str:
    return f"{values}x60" if values.isdecimal() else values
