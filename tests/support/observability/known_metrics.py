"""The metrics that the product's modules register."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from prometheus_client import REGISTRY

# Of whole programs: what they register is what they may tell.
_PROGRAMS = ("api.app", "workers.main", "workers.task_table")
# What the library makes of one metric, by its type.
_ENDINGS = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


@dataclass(frozen=True)
class Known:
    name: str
    type: str
    labels: frozenset[str]

    @property
    def series(self) -> dict[str, frozenset[str]]:
        """The labels of each series that Prometheus has of it."""
        return {
            self.name + ending: self.labels | ({"le"} if ending == "_bucket" else set())
            for ending in _ENDINGS[self.type]
        }


@cache
def registered() -> frozenset[Known]:
    for program in _PROGRAMS:
        import_module(program)
    collectors: Any = REGISTRY._collector_to_names  # the library has no other list
    found = set()
    for collector in list(collectors):
        families = [collector] if hasattr(collector, "_labelnames") else collector.collect()
        for family in families:
            name = getattr(family, "_name", None) or family.name
            kind = getattr(family, "_type", None) or family.type
            labels = getattr(family, "_labelnames", ())
            found.add(Known(name, kind, frozenset(labels)))
    return frozenset(each for each in found if each.name.startswith("pressroom_"))
