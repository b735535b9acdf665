"""Reads the Prometheus rules of the deployment, and finds unknown names in PromQL queries."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.documents.markdown import ROOT
from tests.support.observability.known_metrics import registered

FOLDER = ROOT / "deploy" / "observability"
ALERTS = FOLDER / "prometheus" / "alerts.yml"
RECORDING = FOLDER / "prometheus" / "recording.yml"
RULE_FILES = (RECORDING, ALERTS)

_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"")
_METRIC_NAME = re.compile(r"\b(?:pressroom|process)[a-zA-Z0-9_:]*")
_SELECTOR = re.compile(r"\b(pressroom[a-zA-Z0-9_:]*)\s*\{([^}]*)\}")
_MATCHER_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
# The labels that Prometheus itself adds to each metric.
_TARGET_LABELS = {"instance", "job"}


@dataclass(frozen=True)
class Rule:
    name: str
    query: str
    severity: str
    runbook: str
    runbook_url: str


def _read_rules(file: Path) -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(file.read_text())["groups"]:
        yield from group["rules"]


@cache
def alerts() -> dict[str, Rule]:
    return {
        each["alert"]: Rule(
            each["alert"],
            each["expr"],
            each["labels"]["severity"],
            each["annotations"]["runbook"],
            each["annotations"]["runbook_url"],
        )
        for each in _read_rules(ALERTS)
    }


@cache
def recorded() -> dict[str, str]:
    return {each["record"]: each["expr"] for each in _read_rules(RECORDING)}


@cache
def series() -> dict[str, frozenset[str]]:
    """Map the name of each time series to its labels."""
    known = {name: labels for each in registered() for name, labels in each.series.items()}
    for name, query in recorded().items():
        grouped = _GROUPING.search(query)
        labels = set(re.findall(r"\w+", grouped[1])) if grouped else set()
        # A recording rule computes a quantile from histogram buckets, so its result has no ``le``
        # label, which names a bucket.
        known[name] = frozenset(labels - {"le"})
    return known


def find_unknown_names(query: str) -> list[str]:
    """Return the names in a PromQL query that belong to no existing metric or label."""
    plain = _STRING.sub('""', query)
    names = [name for name in _METRIC_NAME.findall(plain) if not name.startswith("process")]
    unknown = [name for name in names if name not in series()]
    for name, matchers in _SELECTOR.findall(plain):
        labels = series().get(name, frozenset()) | _TARGET_LABELS
        unknown += [
            f"{name}{{{label}}}"
            for label in _MATCHER_LABEL.findall(matchers)
            if label not in labels
        ]
    known_labels = _TARGET_LABELS.union(*(series().get(name, frozenset()) for name in names))
    for grouped in _GROUPING.findall(plain):
        unknown += [
            f"by {label}" for label in re.findall(r"\w+", grouped) if label not in known_labels
        ]
    return unknown
