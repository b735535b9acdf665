"""A real Prometheus that watches a real stack by the deployment's own rules, in a hurry.

Of the rules only times are changed: what the rules of a deployment wait minutes for, these wait
seconds for.
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
from tests.support.prerequisites import pass_over

# From when a rule's condition holds.
_FOR = (re.compile(r"^(\s+for:) \w+$", re.MULTILINE), r"\1 1s")
# Over what a rate is taken. Several scrapes are in it on a busy machine too.
_RANGE = (re.compile(r"\[\d+[mh]\]"), "[15s]")
# For how long something may be late or failing.
_SECONDS = (re.compile(r"(_seconds(?::max)?(?:\{[^}]*\})?\)? > )\d{2,}"), r"\g<1>3")
MAX_SECONDS = 90.0


def hurried(rules: str) -> str:
    for pattern, instead in (_FOR, _RANGE, _SECONDS):
        rules = pattern.sub(instead, rules)
    return rules


@dataclass(frozen=True)
class Watch:
    """Prometheus, and what it says."""

    url: str

    def firing(self, name: str, labels: Mapping[str, str]) -> bool:
        # An alert of another name would never fire.
        assert name in alerts()
        reply = httpx2.get(f"{self.url}/api/v1/alerts", timeout=10).raise_for_status().json()
        return any(
            each["state"] == "firing"
            and each["labels"]["alertname"] == name
            and labels.items() <= each["labels"].items()
            for each in reply["data"]["alerts"]
        )

    def await_alert(self, name: str, labels: Mapping[str, str]) -> None:
        eventually(lambda: self.firing(name, labels), within=MAX_SECONDS, what=f"the alert {name}")

    def await_silence(self, name: str, labels: Mapping[str, str]) -> None:
        eventually(
            lambda: not self.firing(name, labels), within=MAX_SECONDS, what=f"the end of {name}"
        )

    def sees(self, targets: int) -> bool:
        """Whether so many targets have answered."""
        asked = httpx2.get(f"{self.url}/api/v1/query", params={"query": "sum(up)"}, timeout=10)
        found = asked.raise_for_status().json()["data"]["result"]
        return bool(found) and float(found[0]["value"][1]) >= targets


def start_watch(stack: Stack, folder: Path, workers: list[str]) -> tuple[Running, Watch]:
    """Watch the stack's API and the workers at these addresses, each second."""
    if not PROMETHEUS.exists():
        pass_over("prometheus is not installed (Debian's package prometheus)")
    for file in RULE_FILES:
        (folder / file.name).write_text(hurried(file.read_text()))
    (folder / "token").write_text(stack.environment["PRESSROOM_METRICS_TOKEN"])
    configured = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / file.name) for file in RULE_FILES],
        "scrape_configs": [
            {
                "job_name": "pressroom-api",
                # A dependency that hangs keeps the answer waiting for a second.
                "scrape_interval": "3s",
                "scrape_timeout": "3s",
                "static_configs": [{"targets": [stack.api_url.removeprefix("http://")]}],
                "authorization": {"credentials_file": str(folder / "token")},
            },
            {"job_name": "pressroom-workers", "static_configs": [{"targets": workers}]},
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configured))
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
        ready=lambda: _answers(url),
    )
    eventually(lambda: watch.sees(1 + len(workers)), within=30, what="an answer of all targets")
    return running, watch


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/-/ready", timeout=5).status_code == httpx2.codes.OK
    except httpx2.HTTPError:
        return False
