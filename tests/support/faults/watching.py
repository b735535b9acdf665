"""Runs Prometheus with the alert rules of the deployment, but with shorter durations in the rules.

The shorter durations let alerts fire after seconds instead of minutes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2
import yaml

from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from tests.support.observability.alert_rules import RULE_FILES, alerts
from tests.support.observability.scraping import PROMETHEUS
from tests.support.prerequisites import skip_or_fail

# How long the condition of an alert rule must hold before the alert fires.
_FOR = (re.compile(r"^(\s+for:) \w+$", re.MULTILINE), r"\1 1s")
# The time range over which an alert rule computes a rate. Even on a busy machine, Prometheus
# scrapes each target several times in 15 seconds.
_RANGE = (re.compile(r"\[\d+[mh]\]"), "[15s]")
# The threshold in seconds of an alert rule about long delays or long failures.
_THRESHOLD = (re.compile(r"(_seconds(?::max)?(?:\{[^}]*\})?\)? > )\d{2,}"), r"\g<1>3")
MAX_SECONDS = 90.0


def shorten_rule_times(rules: str) -> str:
    """Return the alert rules with all durations shortened to seconds."""
    for pattern, replacement in (_FOR, _RANGE, _THRESHOLD):
        rules = pattern.sub(replacement, rules)
    return rules


@dataclass(frozen=True)
class Watch:
    """A running Prometheus, and its alerts."""

    url: str

    def is_firing(self, name: str, labels: Mapping[str, str]) -> bool:
        # Require a known name, because a misspelt name would look like an alert that doesn't fire.
        assert name in alerts()
        reply = httpx2.get(f"{self.url}/api/v1/alerts", timeout=10).raise_for_status().json()
        return any(
            each["state"] == "firing"
            and each["labels"]["alertname"] == name
            and labels.items() <= each["labels"].items()
            for each in reply["data"]["alerts"]
        )

    def await_alert(self, name: str, labels: Mapping[str, str]) -> None:
        eventually(
            lambda: self.is_firing(name, labels), within=MAX_SECONDS, what=f"the alert {name}"
        )

    def await_silence(self, name: str, labels: Mapping[str, str]) -> None:
        eventually(
            lambda: not self.is_firing(name, labels), within=MAX_SECONDS, what=f"the end of {name}"
        )

    def has_scraped(self, target_count: int) -> bool:
        """Return whether the latest scrapes of at least ``target_count`` targets succeeded."""
        reply = httpx2.get(f"{self.url}/api/v1/query", params={"query": "sum(up)"}, timeout=10)
        result = reply.raise_for_status().json()["data"]["result"]
        return bool(result) and float(result[0]["value"][1]) >= target_count


def start_watch(stack: Stack, folder: Path, workers: list[str]) -> tuple[Running, Watch]:
    """Start a Prometheus that scrapes the stack's API and the workers at these addresses."""
    if not PROMETHEUS.exists():
        skip_or_fail("prometheus is not installed (Debian's package prometheus)")
    for file in RULE_FILES:
        (folder / file.name).write_text(shorten_rule_times(file.read_text()))
    (folder / "token").write_text(stack.environment["PRESSROOM_METRICS_TOKEN"])
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / file.name) for file in RULE_FILES],
        "scrape_configs": [
            {
                "job_name": "pressroom-api",
                # While a dependency hangs, the API needs a second to respond.
                "scrape_interval": "3s",
                "scrape_timeout": "3s",
                "static_configs": [{"targets": [stack.api_url.removeprefix("http://")]}],
                "authorization": {"credentials_file": str(folder / "token")},
            },
            {"job_name": "pressroom-workers", "static_configs": [{"targets": workers}]},
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    url = f"http://127.0.0.1:{free_port()}"
    watch = Watch(url)
    running = stack.run(
        "prometheus",
        (
            str(PROMETHEUS),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={url.removeprefix('http://')}",
        ),
        ready=lambda: _is_ready(url),
    )
    eventually(
        lambda: watch.has_scraped(1 + len(workers)), within=30, what="an answer of all targets"
    )
    return running, watch


def _is_ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/-/ready", timeout=5).status_code == httpx2.codes.OK
    except httpx2.HTTPError:
        return False
