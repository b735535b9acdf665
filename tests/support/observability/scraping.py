"""Scrapes the metrics of our processes, as Prometheus does."""

import math
import subprocess
from dataclasses import dataclass
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from devstack.harness.stack import Stack
from tests.support.prerequisites import skip_or_fail

PROMTOOL = Path("/usr/bin/promtool")
PROMETHEUS = Path("/usr/bin/prometheus")


@dataclass(frozen=True)
class Scrape:
    text: str

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of all series with these labels, or NaN if there is none."""
        values = [
            sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(values) if values else math.nan

    def label_names(self) -> set[str]:
        return {
            label
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            for label in sample.labels
        }


def scrape(url: str, token: str | None = None) -> Scrape:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return Scrape(httpx2.get(url, headers=headers, timeout=10).raise_for_status().text)


def scrape_api(stack: Stack) -> Scrape:
    return scrape(f"{stack.api_url}/metrics", stack.environment["PRESSROOM_METRICS_TOKEN"])


def promtool(*words: str, given: str | None = None) -> None:
    if not PROMTOOL.exists():
        skip_or_fail("promtool is not installed (Debian's package prometheus)")
    process = subprocess.run(
        [str(PROMTOOL), *words], input=given, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
