from typing import Any

import pytest
import yaml

from tests.support.commands.command_line import option
from tests.support.deployment import files
from tests.support.observability.alert_rules import FOLDER, RULE_FILES

pytestmark = pytest.mark.tier("check")

PROMETHEUS = FOLDER / "prometheus" / "prometheus.yml"


def configured() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(PROMETHEUS.read_text())
    return found


def test_prometheus_scrapes_the_api_and_every_worker_at_their_ports() -> None:
    found = {
        (name, each["port"])
        for job in configured()["scrape_configs"]
        for each in job["dns_sd_configs"]
        for name in each["names"]
    }
    api = ("api", int(option(files.services()["api"]["command"], "--port") or ""))
    workers = {
        (name, int(each["environment"]["PRESSROOM_WORKER_METRICS_ADDRESS"].rpartition(":")[2]))
        for name, each in files.workers().items()
    }
    assert found == {api, *workers}
    inside = set(files.observers()["prometheus"]["networks"])
    for name, _ in found:
        assert inside & set(files.services()[name]["networks"])


def test_prometheus_reads_token_and_rules_from_their_mounts() -> None:
    service = files.observers()["prometheus"]
    [secret] = service["secrets"]
    [given] = {
        each["authorization"]["credentials_file"]
        for each in configured()["scrape_configs"]
        if "authorization" in each
    }
    assert given == f"{files.SECRETS_FOLDER}/{secret}"
    [folder] = [each.split(":") for each in service["volumes"] if each.startswith("./")]
    assert PROMETHEUS.parent == files.ROOT / folder[0]
    assert f"--config.file={folder[1]}/{PROMETHEUS.name}" in service["command"]
    assert set(configured()["rule_files"]) == {file.name for file in RULE_FILES}


def test_grafana_uses_prometheus_and_finds_its_dashboards() -> None:
    service, provisioned = files.observers()["grafana"], FOLDER / "grafana" / "provisioning"
    [source] = yaml.safe_load((provisioned / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    port = files.observers()["prometheus"]["ports"][0].rpartition(":")[2]
    assert source["url"] == f"http://prometheus:{port}"
    assert set(service["networks"]) & set(files.observers()["prometheus"]["networks"])
    [provider] = yaml.safe_load((provisioned / "dashboards" / "pressroom.yml").read_text())[
        "providers"
    ]
    mounts = dict(each.split(":")[:2] for each in service["volumes"])
    inside = {inside: place for place, inside in mounts.items()}
    assert inside[provider["options"]["path"]] == "./deploy/observability/grafana/dashboards"
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    folder, _, file = home.rpartition("/")
    assert (files.ROOT / inside[folder] / file).exists()
    [secret] = service["secrets"]
    file = service["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"]
    assert file == f"{files.SECRETS_FOLDER}/{secret}"
