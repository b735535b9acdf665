"""The rules of the deployment, and the metrics that a query in PromQL names."""

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

_TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"")
_NAME = re.compile(r"\b(?:pressroom|process)[a-zA-Z0-9_:]*")
_SELECTED = re.compile(r"\b(pressroom[a-zA-Z0-9_:]*)\s*\{([^}]*)\}")
_MATCHED = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
# Of the collector itself.
_TARGET = {"instance", "job"}


@dataclass(frozen=True)
class Rule:
    name: str
    query: str
    severity: str
    runbook: str


def _groups(file: Path) -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(file.read_text())["groups"]:
        yield from group["rules"]


@cache
def alerts() -> dict[str, Rule]:
    return {
        each["alert"]: Rule(
            each["alert"], each["expr"], each["labels"]["severity"], each["annotations"]["runbook"]
        )
        for each in _groups(ALERTS)
    }


@cache
def recorded() -> dict[str, str]:
    """The query of each recorded series, by its name."""
    return {each["record"]: each["expr"] for each in _groups(RECORDING)}


@cache
def series() -> dict[str, frozenset[str]]:
    """The labels of every series that a query may ask for."""
    known = {name: labels for each in registered() for name, labels in each.series.items()}
    for name, query in recorded().items():
        grouped = _GROUPED.search(query)
        labels = set(re.findall(r"\w+", grouped[1])) if grouped else set()
        # A quantile has no buckets.
        known[name] = frozenset(labels - {"le"})
    return known


def unknown_in(query: str) -> list[str]:
    """What a query names and no process or rule makes: metrics, and labels of metrics."""
    plain = _TEXT.sub('""', query)
    names = [name for name in _NAME.findall(plain) if not name.startswith("process")]
    wrong = [name for name in names if name not in series()]
    for name, matchers in _SELECTED.findall(plain):
        labels = series().get(name, frozenset()) | _TARGET
        wrong += [
            f"{name}{{{label}}}" for label in _MATCHED.findall(matchers) if label not in labels
        ]
    there = _TARGET.union(*(series().get(name, frozenset()) for name in names))
    for grouped in _GROUPED.findall(plain):
        wrong += [f"by {label}" for label in re.findall(r"\w+", grouped) if label not in there]
    return wrong
