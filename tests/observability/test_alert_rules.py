"""Tests that each alert rule fires for its fault, clears afterwards, and has a runbook section."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from core.counters.work_metrics import initialize_job_counters
from tests.support.documents import markdown
from tests.support.documents.error_catalogue import ENTRIES
from tests.support.observability.alert_rules import (
    ALERTS,
    RECORDING,
    RULE_FILES,
    alerts,
    find_unknown_names,
    recorded,
)
from tests.support.observability.scraping import promtool

pytestmark = pytest.mark.tier("check")

RUNBOOK = markdown.ROOT / "docs" / "runbook.md"
_CODES = re.compile(r'\bcode=~?"([^"]*)"')
# The lengths of the three phases in the test of an alert rule. The metrics have normal values in
# the first phase, faulty values in the second phase, and normal values again in the third phase.
_NORMAL_MINUTES_BEFORE = 30
_FAULT_MINUTES = 120
_NORMAL_MINUTES_AFTER = 120
_TOTAL_MINUTES = _NORMAL_MINUTES_BEFORE + _FAULT_MINUTES + _NORMAL_MINUTES_AFTER


@dataclass(frozen=True)
class Case:
    """Metric values with which an alert fires, and values with which it doesn't.

    Attributes:
        faulty: maps each series to its value, or to its increase per minute, during the fault.
        normal: like ``faulty``, but before and after the fault.
        labels: the labels of the alert.
    """

    faulty: dict[str, str]
    normal: dict[str, str]
    labels: dict[str, str]


def gauge(series_name: str, faulty: float, normal: float, **labels: str) -> Case:
    return Case({series_name: f"{faulty}"}, {series_name: f"{normal}"}, labels)


def counters(faulty: dict[str, float], normal: dict[str, float], **labels: str) -> Case:
    """Return a ``Case`` in which all metrics are counters.

    Args:
        faulty: maps each series to its increase per minute during the fault.
        normal: maps each series to its increase per minute before and after the fault.
    """
    faulty_increases = {name: f"+{each}" for name, each in faulty.items()}
    normal_increases = {name: f"+{each}" for name, each in normal.items()}
    return Case(faulty_increases, normal_increases, labels)


# The metrics and labels to which the tests assign values, in the notation of Prometheus.
REQUESTS = 'pressroom_requests_total{method="GET",route="/lists",status="200"}'
SERVER_ERRORS = 'pressroom_requests_total{method="GET",route="/lists",status="500"}'
SHED_REQUESTS = 'pressroom_errors_total{code="service.busy"}'
BUSY_LISTS = 'pressroom_errors_total{code="list.busy"}'
REQUESTS_BELOW_100_MS = 'pressroom_request_seconds_bucket{method="GET",route="/lists",le="0.1"}'
REQUESTS_BELOW_5_S = 'pressroom_request_seconds_bucket{method="GET",route="/lists",le="5"}'
TIMED_REQUESTS = 'pressroom_request_seconds_bucket{method="GET",route="/lists",le="+Inf"}'
SENT_MAILS, DEFERRED_MAILS, REFUSED_MAILS = (
    f'pressroom_mails_total{{outcome="{each}"}}' for each in ("sent", "deferred", "refused")
)
ANSWERED_CALLS, LIMITED_CALLS = (
    f'pressroom_provider_calls_total{{provider="photo provider",outcome="{each}"}}'
    for each in ("answered", "limited")
)
JOB_LABELS = 'queue="media",kind="attachment.process"'
LOST_LEASES = f"pressroom_job_leases_lost_total{{{JOB_LABELS}}}"
FAILED_JOBS = f'pressroom_job_failures_total{{{JOB_LABELS},code="job.internal_error"}}'
CONNECTIONS = "pressroom_database_server_connections"
MAX_CONNECTIONS = "pressroom_database_server_connections_limit"
# The documentation's URLs in the tests. An empty URL stands for a Prometheus that doesn't know it.
DOCS_URLS = ("https://docs.news.example/pressroom/", "")
QUOTA_LABELS = '{provider="unsplash",window="hour"}'

CASES = {
    "PressroomApiAway": Case({"pressroom_database_up": "_"}, {"pressroom_database_up": "1"}, {}),
    "PressroomDatabaseAway": gauge("pressroom_database_up", 0, 1),
    "PressroomRedisAway": gauge("pressroom_redis_up", 0, 1),
    "PressroomBrokerAway": gauge("pressroom_broker_up", 0, 1),
    "PressroomStorageAway": gauge("pressroom_objects_up", 0, 1),
    "PressroomDiskFull": gauge('pressroom_disk_full{store="objects"}', 1, 0, store="objects"),
    "PressroomStorageFails": counters(
        {"pressroom_s3_failures_total": 10, "pressroom_s3_seconds_count": 100},
        {"pressroom_s3_failures_total": 1, "pressroom_s3_seconds_count": 100},
    ),
    "PressroomRedisFails": counters(
        {"pressroom_redis_failures_total": 10, "pressroom_redis_seconds_count": 100},
        {"pressroom_redis_failures_total": 1, "pressroom_redis_seconds_count": 100},
    ),
    "PressroomConnectionsUsedUp": Case(
        {CONNECTIONS: "92", MAX_CONNECTIONS: "100"}, {CONNECTIONS: "80", MAX_CONNECTIONS: "100"}, {}
    ),
    "PressroomStatementsSlow": counters(
        {"pressroom_slow_statements_total": 90}, {"pressroom_slow_statements_total": 30}
    ),
    "PressroomServerErrors": counters(
        {REQUESTS: 100, SERVER_ERRORS: 2}, {REQUESTS: 1000, SERVER_ERRORS: 1}
    ),
    "PressroomRequestsShed": counters(
        {REQUESTS: 100, SHED_REQUESTS: 6}, {REQUESTS: 100, SHED_REQUESTS: 4}
    ),
    "PressroomListBusy": counters({BUSY_LISTS: 8}, {BUSY_LISTS: 4}),
    "PressroomRequestsSlow": counters(
        {REQUESTS_BELOW_100_MS: 90, REQUESTS_BELOW_5_S: 100, TIMED_REQUESTS: 100},
        {REQUESTS_BELOW_100_MS: 100, REQUESTS_BELOW_5_S: 100, TIMED_REQUESTS: 100},
    ),
    "PressroomLoginsFail": counters(
        {'pressroom_logins_total{outcome="failed"}': 90},
        {'pressroom_logins_total{outcome="failed"}': 30},
    ),
    "PressroomQueueBehind": gauge(
        'pressroom_job_oldest_seconds{queue="mail"}', 301, 200, queue="mail"
    ),
    "PressroomQueueStalled": gauge('pressroom_canary_seconds{queue="mail"}', 31, 1, queue="mail"),
    "PressroomLeasesLost": counters({LOST_LEASES: 1}, {LOST_LEASES: 0}, queue="media"),
    "PressroomJobsFail": counters(
        {FAILED_JOBS: 1},
        {FAILED_JOBS: 0},
        queue="media",
        kind="attachment.process",
        code="job.internal_error",
    ),
    "PressroomConvertersKilled": counters(
        {'pressroom_conversion_kills_total{cause="crashed"}': 1},
        {'pressroom_conversion_kills_total{cause="crashed"}': 0},
    ),
    "PressroomMaintenanceFails": gauge(
        'pressroom_maintenance_failed{maintenance="maintenance.purge"}',
        1,
        0,
        maintenance="maintenance.purge",
    ),
    "PressroomMaintenanceLate": gauge(
        'pressroom_maintenance_late_seconds{maintenance="topups.poll"}',
        7201,
        0,
        maintenance="topups.poll",
    ),
    "PressroomRowsOverdue": gauge('pressroom_overdue_rows{table="jobs"}', 1, 0, table="jobs"),
    "PressroomBackupOverdue": gauge(
        'pressroom_maintenance_failed{maintenance="backup.create"}',
        1,
        0,
        maintenance="backup.create",
    ),
    "PressroomMailDeferred": counters(
        {SENT_MAILS: 1, DEFERRED_MAILS: 5}, {SENT_MAILS: 5, DEFERRED_MAILS: 1}
    ),
    "PressroomMailRefused": counters(
        {SENT_MAILS: 8, REFUSED_MAILS: 2}, {SENT_MAILS: 99, REFUSED_MAILS: 1}
    ),
    "PressroomCircuitOpen": gauge(
        'pressroom_circuit_open{server="mail server"}', 1, 0, server="mail server"
    ),
    "PressroomProviderLimited": counters(
        {ANSWERED_CALLS: 8, LIMITED_CALLS: 2},
        {ANSWERED_CALLS: 99, LIMITED_CALLS: 1},
        provider="photo provider",
    ),
    "PressroomPhotoQuotaLow": Case(
        {f"pressroom_stock_photo_quota{QUOTA_LABELS}": "50"}
        | {f"pressroom_stock_photo_quota_remaining{QUOTA_LABELS}": "4"},
        {f"pressroom_stock_photo_quota{QUOTA_LABELS}": "50"}
        | {f"pressroom_stock_photo_quota_remaining{QUOTA_LABELS}": "40"},
        {"provider": "unsplash", "window": "hour"},
    ),
    "PressroomWebhooksLate": gauge("pressroom_webhook_lag_seconds", 301, 2),
    "PressroomWebhookReceiverDown": gauge("pressroom_webhook_failing_seconds", 3601, 0),
    "PressroomLedgerFaults": gauge("pressroom_ledger_faults", 1, 0),
    "PressroomOrdersInReview": gauge('pressroom_open_orders{status="review"}', 1, 0),
}


def test_promtool_accepts_alert_rules_and_configuration(tmp_path: Path) -> None:
    """Use a temporary token file, because the one in Prometheus's configuration doesn't exist."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", *map(str, RULE_FILES))
    token = tmp_path / "metrics_token"
    token.write_text("word")
    folder = ALERTS.parent
    for file in RULE_FILES:
        (tmp_path / file.name).write_text(file.read_text())
    configuration = (folder / "prometheus.yml").read_text()
    configuration = configuration.replace("/run/secrets/metrics_token", str(token))
    (tmp_path / "prometheus.yml").write_text(configuration)
    promtool("check", "config", str(tmp_path / "prometheus.yml"))


def test_every_alert_rule_fires_and_clears(tmp_path: Path) -> None:
    """Write each alert rule to its own file, because the test would otherwise take much longer.

    In each test, promtool evaluates all rules of the file for every simulated minute.
    """
    assert CASES.keys() == alerts().keys()
    files = []
    for name, case in CASES.items():
        rule_file = tmp_path / f"{name}.rule.yml"
        test_file = tmp_path / f"{name}.yml"
        rule_group = {"name": name, "rules": [_read_rule(name)]}
        rule_file.write_text(yaml.safe_dump({"groups": [rule_group]}))
        test_file.write_text(
            yaml.safe_dump(
                {
                    "rule_files": [str(RECORDING), str(rule_file)],
                    "evaluation_interval": "1m",
                    "tests": [_build_rule_test(name, case, url) for url in DOCS_URLS],
                }
            )
        )
        files.append(str(test_file))
    promtool("test", "rules", *files)


def _build_rule_test(name: str, case: Case, docs_url: str) -> dict[str, Any]:
    """Return a test for promtool: the alert fires at the end of the fault, and clears later.

    ``docs_url``: the value of Prometheus's external label with the URL of the documentation.
    """
    values = {
        each: _counter_values(case.normal[each], faulty)
        if faulty.startswith("+")
        else _gauge_values(case.normal[each], faulty)
        for each, faulty in case.faulty.items()
    }
    firing_alert = {
        "exp_labels": {"severity": alerts()[name].severity, **case.labels},
        "exp_annotations": _annotations(name, case.labels, docs_url),
    }
    expected = {
        _NORMAL_MINUTES_BEFORE: [],
        _NORMAL_MINUTES_BEFORE + _FAULT_MINUTES: [firing_alert],
        _TOTAL_MINUTES: [],
    }
    return {
        "interval": "1m",
        "external_labels": {"docs_url": docs_url},
        "input_series": [{"series": each, "values": values[each]} for each in values],
        "alert_rule_test": [
            {"alertname": name, "eval_time": f"{minute}m", "exp_alerts": alert_list}
            for minute, alert_list in expected.items()
        ],
    }


def _gauge_values(normal: str, faulty: str) -> str:
    """Return the values of a gauge in the notation of promtool."""
    # In the notation of promtool, "5x3" stands for the four values "5 5 5 5", but "_x3" stands for
    # only three missing values.
    is_missing = faulty == "_"
    return (
        f"{normal}x{_NORMAL_MINUTES_BEFORE} {faulty}x{_FAULT_MINUTES - 1 + is_missing}"
        f" {normal}x{_NORMAL_MINUTES_AFTER}"
    )


def _counter_values(normal: str, faulty: str) -> str:
    """Return the values of a counter, which never decrease, in the notation of promtool."""
    normal_increase = float(normal)
    faulty_increase = float(faulty)
    value_before_fault = normal_increase * _NORMAL_MINUTES_BEFORE
    value_after_fault = value_before_fault + faulty_increase * _FAULT_MINUTES
    return (
        f"0+{normal_increase:g}x{_NORMAL_MINUTES_BEFORE}"
        f" {value_before_fault + faulty_increase:g}+{faulty_increase:g}x{_FAULT_MINUTES - 1}"
        f" {value_after_fault + normal_increase:g}+{normal_increase:g}x{_NORMAL_MINUTES_AFTER}"
    )


def _read_rule(name: str) -> dict[str, Any]:
    """Return the alert rule with this name from the file with all alert rules."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    [rule] = [each for group in groups for each in group["rules"] if each["alert"] == name]
    return dict(rule)


def _annotations(name: str, labels: dict[str, str], docs_url: str) -> dict[str, str]:
    annotations: dict[str, str] = _read_rule(name)["annotations"]
    page = f"{docs_url.rstrip('/')}/docs/runbook.html#{name.lower()}"
    annotations["runbook_url"] = page if docs_url else ""
    for label, value in labels.items():
        placeholder = f"{{{{ $labels.{label} }}}}"
        annotations["summary"] = annotations["summary"].replace(placeholder, value)
    return annotations


def test_every_alert_links_to_its_runbook_section() -> None:
    text = RUNBOOK.read_text()
    for name, rule in alerts().items():
        page, _, anchor = rule.runbook.partition("#")
        assert (markdown.ROOT / page, anchor) == (RUNBOOK, name.lower())
        assert anchor in markdown.anchors(RUNBOOK)
        section = text.partition(f"## {name}\n")[2].partition("\n## ")[0].strip()
        assert section.startswith(f"*{rule.severity}.* "), name


def test_alert_rules_use_only_existing_metrics_and_labels() -> None:
    for query in (*(each.query for each in alerts().values()), *recorded().values()):
        assert find_unknown_names(query) == [], query


def test_alert_rules_use_only_existing_error_codes() -> None:
    queries = [each.query for each in alerts().values()]
    codes = {
        code for query in queries for match in _CODES.findall(query) for code in match.split("|")
    }
    assert codes
    assert codes - {entry.code for _, entry in ENTRIES} == set()


def test_failure_counters_of_an_idle_worker_cover_every_code_of_the_alert() -> None:
    """Prometheus needs the value 0, because otherwise a rate misses the first failure."""
    [codes] = _CODES.findall(alerts()["PressroomJobsFail"].query)
    labels = {"queue": "bulk", "kind": "members.import"}
    initialize_job_counters(**labels)
    counts = {
        code: REGISTRY.get_sample_value("pressroom_job_failures_total", labels | {"code": code})
        for code in codes.split("|")
    }
    assert set(counts.values()) == {0.0}, counts
