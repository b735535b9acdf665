"""Tests the configuration of Prometheus and Grafana in the Compose file."""

from typing import Any

import pytest
import yaml

from tests.support.commands.command_line import option
from tests.support.deployment import files
from tests.support.observability.alert_rules import FOLDER, RULE_FILES

pytestmark = pytest.mark.tier("check")

PROMETHEUS = FOLDER / "prometheus" / "prometheus.yml"


def read_configuration() -> dict[str, Any]:
    configuration: dict[str, Any] = yaml.safe_load(PROMETHEUS.read_text())
    return configuration


def test_prometheus_scrapes_the_api_and_every_worker_at_their_ports() -> None:
    targets = {
        (name, each["port"])
        for job in read_configuration()["scrape_configs"]
        for each in job["dns_sd_configs"]
        for name in each["names"]
    }
    api = ("api", int(option(files.services()["api"]["command"], "--port") or ""))
    workers = {
        (name, int(each["environment"]["PRESSROOM_WORKER_METRICS_ADDRESS"].rpartition(":")[2]))
        for name, each in files.workers().items()
    }
    assert targets == {api, *workers}
    networks = set(files.observability_services()["prometheus"]["networks"])
    for name, _ in targets:
        assert networks & set(files.services()[name]["networks"])


def test_prometheus_reads_token_and_rules_from_their_mounts() -> None:
    service = files.observability_services()["prometheus"]
    [secret] = service["secrets"]
    [token_file] = {
        each["authorization"]["credentials_file"]
        for each in read_configuration()["scrape_configs"]
        if "authorization" in each
    }
    assert token_file == f"{files.SECRETS_FOLDER}/{secret}"
    [folder] = [each.split(":") for each in service["volumes"] if each.startswith("./")]
    assert PROMETHEUS.parent == files.ROOT / folder[0]
    assert f"--config.file={folder[1]}/{PROMETHEUS.name}" in service["command"]
    assert set(read_configuration()["rule_files"]) == {file.name for file in RULE_FILES}


def test_prometheus_gets_the_url_of_the_documentation_for_links_to_the_runbook() -> None:
    environment = files.observability_services()["prometheus"]["environment"]
    [(label, value)] = read_configuration()["global"]["external_labels"].items()
    assert value.strip("${}") in environment
    # The label is removed from alerts, because it doesn't describe them.
    [relabeling] = read_configuration()["alerting"]["alert_relabel_configs"]
    assert relabeling == {"action": "labeldrop", "regex": label}


def test_grafana_uses_prometheus_and_finds_its_dashboards() -> None:
    service = files.observability_services()["grafana"]
    provisioning = FOLDER / "grafana" / "provisioning"
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    port = files.observability_services()["prometheus"]["ports"][0].rpartition(":")[2]
    assert source["url"] == f"http://prometheus:{port}"
    assert set(service["networks"]) & set(files.observability_services()["prometheus"]["networks"])
    [provider] = yaml.safe_load((provisioning / "dashboards" / "pressroom.yml").read_text())[
        "providers"
    ]
    mounts = dict(each.split(":")[:2] for each in service["volumes"])
    host_folders = {container_folder: folder for folder, container_folder in mounts.items()}
    dashboard_folder = host_folders[provider["options"]["path"]]
    assert dashboard_folder == "./deploy/observability/grafana/dashboards"
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    folder, _, file = home.rpartition("/")
    assert (files.ROOT / host_folders[folder] / file).exists()
    [secret] = service["secrets"]
    file = service["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"]
    assert file == f"{files.SECRETS_FOLDER}/{secret}"
