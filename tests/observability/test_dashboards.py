"""The dashboards ask for what there is."""

import json
from typing import Any

import pytest
import yaml

from tests.observability.alert_rules import FOLDER, recorded, unknown_in
from tests.observability.known_metrics import registered

pytestmark = pytest.mark.check

GRAFANA = FOLDER / "grafana"
FILES = sorted((GRAFANA / "dashboards").glob("*.json"))
Dashboard = dict[str, Any]


def read(name: str) -> Dashboard:
    found: Dashboard = json.loads((GRAFANA / "dashboards" / name).read_text())
    return found


def queries() -> list[tuple[str, str]]:
    return [
        (f"{file.stem}: {panel['title']}", target["expr"])
        for file in FILES
        for panel in read(file.name)["panels"]
        for target in panel["targets"]
    ]


def test_there_are_four() -> None:
    assert [file.stem for file in FILES] == ["imports-and-mail", "jobs", "money", "overview"]


@pytest.mark.parametrize(("where", "query"), queries(), ids=[where for where, _ in queries()])
def test_queries_name_only_metrics_and_labels_that_there_are(where: str, query: str) -> None:
    assert unknown_in(query) == [], where


def test_every_metric_is_drawn_somewhere() -> None:
    drawn = " ".join(query for _, query in queries())
    missing = [each.name for each in registered() if not any(name in drawn for name in each.series)]
    # Recorded under another name: their dashboards ask for that.
    assert all(any(each in query for query in recorded().values()) for each in missing), missing


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_panels_ask_the_datasource_that_is_provisioned_and_overlap_nowhere(file: Any) -> None:
    places = GRAFANA / "provisioning" / "datasources" / "prometheus.yml"
    [source] = yaml.safe_load(places.read_text())["datasources"]
    dashboard = read(file.name)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        assert panel["datasource"]["uid"] == source["uid"]
        assert all(target["datasource"]["uid"] == source["uid"] for target in panel["targets"])
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert cells.isdisjoint(taken), panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_each_dashboard_and_each_panel_has_a_name_of_its_own() -> None:
    dashboards = [read(file.name) for file in FILES]
    for key in ("uid", "title"):
        assert len({each[key] for each in dashboards}) == len(dashboards)
    for each in dashboards:
        titles = [panel["title"] for panel in each["panels"]]
        ids = [panel["id"] for panel in each["panels"]]
        assert len(set(titles)) == len(titles)
        assert len(set(ids)) == len(ids)
