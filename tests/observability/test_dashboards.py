import json

import pytest
import yaml

from tests.support.observability.alert_rules import FOLDER, find_unknown_names
from tests.support.observability.known_metrics import registered

pytestmark = pytest.mark.tier("check")

GRAFANA = FOLDER / "grafana"


def test_dashboard_panels_use_the_provisioned_datasource_and_existing_metrics() -> None:
    source_file = GRAFANA / "provisioning" / "datasources" / "prometheus.yml"
    [source] = yaml.safe_load(source_file.read_text())["datasources"]
    files = sorted((GRAFANA / "dashboards").glob("*.json"))
    assert [file.stem for file in files] == ["imports-and-mail", "jobs", "money", "overview"]
    for file in files:
        for panel in json.loads(file.read_text())["panels"]:
            panel_name = f"{file.stem}: {panel['title']}"
            assert panel["datasource"]["uid"] == source["uid"], panel_name
            for target in panel["targets"]:
                assert target["datasource"]["uid"] == source["uid"], panel_name
                assert find_unknown_names(target["expr"]) == [], panel_name


def test_metric_labels_never_identify_people_lists_or_addresses() -> None:
    # The names of all metric labels. Each label has only a few different values.
    labels_with_few_values = {
        *("method", "route", "status", "code", "bulkhead", "reserve", "outcome", "type"),
        *("queue", "kind", "cause", "provider", "server", "window", "model", "direction", "store"),
        *("state", "currency", "action", "maintenance", "table"),
    }
    assert {label for each in registered() for label in each.labels} <= labels_with_few_values
