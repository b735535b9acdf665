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
    recorded,
    unknown_in,
)
from tests.support.observability.scraping import promtool

pytestmark = pytest.mark.tier("check")

RUNBOOK = markdown.ROOT / "docs" / "runbook.md"
_CODES = re.compile(r'\bcode=~?"([^"]*)"')
# Minutes: all is well, then the trouble, then all is well again.
_BEFORE, _WRONG, _AFTER = 30, 120, 120
_LONGEST = _BEFORE + _WRONG + _AFTER


@dataclass(frozen=True)
class Case:
    """Attributes:
    wrong: how each series goes on, a step a minute, while something is wrong.
    well: the same before and after that.
    labels: of the alert that fires.
    """

    wrong: dict[str, str]
    well: dict[str, str]
    labels: dict[str, str]


def gauge(series_name: str, wrong: float, well: float, **labels: str) -> Case:
    return Case({series_name: f"{wrong}"}, {series_name: f"{well}"}, labels)


def counters(wrong: dict[str, float], well: dict[str, float], **labels: str) -> Case:
    """By how much each rises in a minute."""
    rise = {name: f"+{each}" for name, each in wrong.items()}
    return Case(rise, {name: f"+{each}" for name, each in well.items()}, labels)


REQUESTS = 'pressroom_requests_total{method="GET",route="/lists",status="200"}'
BROKEN = 'pressroom_requests_total{method="GET",route="/lists",status="500"}'
SHED = 'pressroom_errors_total{code="service.busy"}'
BUSY = 'pressroom_errors_total{code="list.busy"}'
QUICK = 'pressroom_request_seconds_bucket{method="GET",route="/lists",le="0.1"}'
SLOW = 'pressroom_request_seconds_bucket{method="GET",route="/lists",le="5"}'
ALL = 'pressroom_request_seconds_bucket{method="GET",route="/lists",le="+Inf"}'
SENT, DEFERRED, REFUSED = (
    f'pressroom_mails_total{{outcome="{each}"}}' for each in ("sent", "deferred", "refused")
)
ANSWERED, LIMITED = (
    f'pressroom_provider_calls_total{{provider="photo provider",outcome="{each}"}}'
    for each in ("answered", "limited")
)
KIND = 'queue="media",kind="attachment.process"'
LOST = f"pressroom_job_leases_lost_total{{{KIND}}}"
BROKE = f'pressroom_job_failures_total{{{KIND},code="job.internal_error"}}'
OPEN, LIMIT = "pressroom_database_server_connections", "pressroom_database_server_connections_limit"
QUOTA = '{provider="unsplash",window="hour"}'

CASES = {
    "PressroomApiAway": Case({"pressroom_database_up": "_"}, {"pressroom_database_up": "1"}, {}),
    "PressroomDatabaseAway": gauge("pressroom_database_up", 0, 1),
    "PressroomRedisAway": gauge("pressroom_redis_up", 0, 1),
    "PressroomBrokerAway": gauge("pressroom_broker_up", 0, 1),
    "PressroomStorageAway": gauge("pressroom_objects_up", 0, 1),
    "PressroomStorageFails": counters(
        {"pressroom_s3_failures_total": 10, "pressroom_s3_seconds_count": 100},
        {"pressroom_s3_failures_total": 1, "pressroom_s3_seconds_count": 100},
    ),
    "PressroomRedisFails": counters(
        {"pressroom_redis_failures_total": 10, "pressroom_redis_seconds_count": 100},
        {"pressroom_redis_failures_total": 1, "pressroom_redis_seconds_count": 100},
    ),
    "PressroomConnectionsUsedUp": Case({OPEN: "92", LIMIT: "100"}, {OPEN: "80", LIMIT: "100"}, {}),
    "PressroomStatementsSlow": counters(
        {"pressroom_slow_statements_total": 90}, {"pressroom_slow_statements_total": 30}
    ),
    "PressroomServerErrors": counters({REQUESTS: 100, BROKEN: 2}, {REQUESTS: 1000, BROKEN: 1}),
    "PressroomRequestsShed": counters({REQUESTS: 100, SHED: 6}, {REQUESTS: 100, SHED: 4}),
    "PressroomListBusy": counters({BUSY: 8}, {BUSY: 4}),
    "PressroomRequestsSlow": counters(
        {QUICK: 90, SLOW: 100, ALL: 100}, {QUICK: 100, SLOW: 100, ALL: 100}
    ),
    "PressroomLoginsFail": counters(
        {'pressroom_logins_total{outcome="failed"}': 90},
        {'pressroom_logins_total{outcome="failed"}': 30},
    ),
    "PressroomQueueBehind": gauge(
        'pressroom_job_oldest_seconds{queue="mail"}', 301, 200, queue="mail"
    ),
    "PressroomQueueStalled": gauge('pressroom_canary_seconds{queue="mail"}', 31, 1, queue="mail"),
    "PressroomLeasesLost": counters({LOST: 1}, {LOST: 0}, queue="media"),
    "PressroomJobsFail": counters(
        {BROKE: 1}, {BROKE: 0}, queue="media", kind="attachment.process", code="job.internal_error"
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
    "PressroomMailDeferred": counters({SENT: 1, DEFERRED: 5}, {SENT: 5, DEFERRED: 1}),
    "PressroomMailRefused": counters({SENT: 8, REFUSED: 2}, {SENT: 99, REFUSED: 1}),
    "PressroomCircuitOpen": gauge(
        'pressroom_circuit_open{server="mail server"}', 1, 0, server="mail server"
    ),
    "PressroomProviderLimited": counters(
        {ANSWERED: 8, LIMITED: 2}, {ANSWERED: 99, LIMITED: 1}, provider="photo provider"
    ),
    "PressroomPhotoQuotaLow": Case(
        {f"pressroom_stock_photo_quota{QUOTA}": "50"}
        | {f"pressroom_stock_photo_quota_remaining{QUOTA}": "4"},
        {f"pressroom_stock_photo_quota{QUOTA}": "50"}
        | {f"pressroom_stock_photo_quota_remaining{QUOTA}": "40"},
        {"provider": "unsplash", "window": "hour"},
    ),
    "PressroomWebhooksLate": gauge("pressroom_webhook_lag_seconds", 301, 2),
    "PressroomWebhookReceiverDown": gauge("pressroom_webhook_failing_seconds", 3601, 0),
    "PressroomLedgerFaults": gauge("pressroom_ledger_faults", 1, 0),
    "PressroomOrdersInReview": gauge('pressroom_open_orders{status="review"}', 1, 0),
}


def test_promtool_accepts_alert_rules_and_configuration(tmp_path: Path) -> None:
    """With a token's file in the place where a container has it."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", *map(str, RULE_FILES))
    token = tmp_path / "metrics_token"
    token.write_text("word")
    folder = ALERTS.parent
    for file in RULE_FILES:
        (tmp_path / file.name).write_text(file.read_text())
    configured = (folder / "prometheus.yml").read_text()
    configured = configured.replace("/run/secrets/metrics_token", str(token))
    (tmp_path / "prometheus.yml").write_text(configured)
    promtool("check", "config", str(tmp_path / "prometheus.yml"))


def test_every_alert_rule_fires_and_clears(tmp_path: Path) -> None:
    """By one process, each with its own rule alone: it asks every rule of a file each minute."""
    assert CASES.keys() == alerts().keys()
    files = []
    for name, case in CASES.items():
        rule, tested = tmp_path / f"{name}.rule.yml", tmp_path / f"{name}.yml"
        rule.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": [_written(name)]}]}))
        tested.write_text(
            yaml.safe_dump(
                {
                    "rule_files": [str(RECORDING), str(rule)],
                    "evaluation_interval": "1m",
                    "tests": [_tried(name, case)],
                }
            )
        )
        files.append(str(tested))
    promtool("test", "rules", *files)


def _tried(name: str, case: Case) -> dict[str, Any]:
    values = {
        each: _rising(case.well[each], wrong)
        if wrong.startswith("+")
        else _steps(case.well[each], wrong)
        for each, wrong in case.wrong.items()
    }
    fires = {
        "exp_labels": {"severity": alerts()[name].severity, **case.labels},
        "exp_annotations": _annotations(name, case.labels),
    }
    expected = {_BEFORE: [], _BEFORE + _WRONG: [fires], _LONGEST: []}
    return {
        "interval": "1m",
        "input_series": [{"series": each, "values": values[each]} for each in values],
        "alert_rule_test": [
            {"alertname": name, "eval_time": f"{minute}m", "exp_alerts": found}
            for minute, found in expected.items()
        ],
    }


def _steps(well: str, wrong: str) -> str:
    # Of a value there is one more than the number says, and of a gap as many.
    gap = wrong == "_"
    return f"{well}x{_BEFORE} {wrong}x{_WRONG - 1 + gap} {well}x{_AFTER}"


def _rising(well: str, wrong: str) -> str:
    """A counter, which goes on from where it was."""
    slow, fast = float(well), float(wrong)
    turn, back = slow * _BEFORE, slow * _BEFORE + fast * _WRONG
    return (
        f"0+{slow:g}x{_BEFORE} {turn + fast:g}+{fast:g}x{_WRONG - 1}"
        f" {back + slow:g}+{slow:g}x{_AFTER}"
    )


def _written(name: str) -> dict[str, Any]:
    """The rule as its file has it."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    [found] = [each for group in groups for each in group["rules"] if each["alert"] == name]
    return dict(found)


def _annotations(name: str, labels: dict[str, str]) -> dict[str, str]:
    written: dict[str, str] = _written(name)["annotations"]
    for label, value in labels.items():
        written["summary"] = written["summary"].replace(f"{{{{ $labels.{label} }}}}", value)
    return written


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
        assert unknown_in(query) == [], query


def test_alert_rules_use_only_existing_error_codes() -> None:
    queries = [each.query for each in alerts().values()]
    named = {
        code for query in queries for found in _CODES.findall(query) for code in found.split("|")
    }
    assert named
    assert named - {entry.code for _, entry in ENTRIES} == set()


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
