"""The Compose profile brings a Prometheus that finds our processes, and a Grafana that finds it."""

import re
from typing import Any

import pytest
import yaml

from tests.command_line import option
from tests.deployment import files
from tests.observability.alert_rules import FOLDER, RULE_FILES

pytestmark = pytest.mark.check

each_observer = pytest.mark.parametrize("name", files.observers())
PROMETHEUS = FOLDER / "prometheus" / "prometheus.yml"


def configured() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(PROMETHEUS.read_text())
    return found


def test_the_profile_has_both_and_nothing_else_needs_it() -> None:
    assert set(files.observers()) == {"prometheus", "grafana"}
    for each in files.services().values():
        assert not set(each.get("depends_on", {})) & set(files.observers())


@each_observer
def test_they_have_no_rights_and_bounds_as_all_others(name: str) -> None:
    service = files.observers()[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["restart"] == "unless-stopped"
    assert "test" in service["healthcheck"]
    assert service["logging"]


@each_observer
def test_they_are_pinned_and_open_to_this_machine_alone(name: str) -> None:
    service = files.observers()[name]
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", service["image"].partition(":")[2])
    [port] = service["ports"]
    assert port.startswith("127.0.0.1:")
    # No container that strangers reach is in a network with them.
    assert set(service["networks"]) <= {"data", "operators"}


@each_observer
def test_what_they_mount_is_there_and_what_they_keep_has_a_volume(name: str) -> None:
    for volume in files.observers()[name]["volumes"]:
        place, inside, *options = volume.split(":")
        if place.startswith("./"):
            assert options == ["ro"]
            assert (files.ROOT / place).exists(), inside
        else:
            assert place in files.compose()["volumes"]


def test_prometheus_finds_the_api_and_every_worker_at_their_ports() -> None:
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


def test_prometheus_reads_the_token_and_the_rules_from_where_they_are_mounted() -> None:
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


def test_grafana_asks_prometheus_at_its_port_and_finds_its_dashboards() -> None:
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


def test_grafanas_password_is_a_secret_and_no_variable() -> None:
    service = files.observers()["grafana"]
    [secret] = service["secrets"]
    file = service["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"]
    assert file == f"{files.SECRETS_FOLDER}/{secret}"
