"""Lists the metrics that the product's modules register."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from prometheus_client import REGISTRY

# Importing these modules of the API and of the workers registers all metrics of Pressroom.
_PROGRAMS = ("api.app", "workers.main", "workers.task_table")
# Maps each type of metric to the suffixes that Prometheus adds to the metric's name.
_ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


@dataclass(frozen=True)
class Metric:
    name: str
    type: str
    labels: frozenset[str]

    @property
    def series(self) -> dict[str, frozenset[str]]:
        """Map the name of each time series of the metric to the labels of the series."""
        return {
            self.name + ending: self.labels | ({"le"} if ending == "_bucket" else set())
            for ending in _ENDINGS[self.type]
        }


@cache
def registered() -> frozenset[Metric]:
    for program in _PROGRAMS:
        import_module(program)
    # Use a private attribute, because `prometheus_client` has no public list of its collectors.
    collectors: Any = REGISTRY._collector_to_names
    metrics = set()
    for collector in list(collectors):
        families = [collector] if hasattr(collector, "_labelnames") else collector.collect()
        for family in families:
            name = getattr(family, "_name", None) or family.name
            kind = getattr(family, "_type", None) or family.type
            labels = getattr(family, "_labelnames", ())
            metrics.add(Metric(name, kind, frozenset(labels)))
    return frozenset(each for each in metrics if each.name.startswith("pressroom_"))
