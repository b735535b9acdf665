"""Measures the product and a baseline alternately, and compares the results."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

ROUNDS = 5
# A result without a target has this text in its attribute ``bar``.
NO_BAR = "(no bar)"


@dataclass(frozen=True)
class Finding:
    """A benchmark result: a single number, or Pressroom's value divided by the baseline's."""

    name: str
    value: float
    # The unit of ``value``, for example "×" for a ratio of product to baseline.
    unit: str
    bar: str
    met: bool
    # The smallest and the largest result of the measured rounds.
    spread: tuple[float, float]
    details: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        low, high = self.spread
        verdict = "meets" if self.met else "MISSES"
        return (
            f"{self.name:<34} {self.value:8.2f} {self.unit:<3} "
            f"({low:.2f}-{high:.2f})   {verdict} {self.bar}"
        )

    def record(self) -> dict[str, Any]:
        """Return the result as a JSON object, with numbers rounded to four significant digits."""
        value, *spread = (float(f"{each:.4g}") for each in (self.value, *self.spread))
        return asdict(self) | {"value": value, "spread": spread}


@dataclass(frozen=True)
class TimeLimit:
    """The longest acceptable time of an API call, relative to a baseline that doesn't use HTTP.

    The limit is ``factor`` times the baseline's time, plus ``allowance_ms`` milliseconds for the
    HTTP call.
    """

    factor: float
    allowance_ms: int

    @property
    def bar(self) -> str:
        return f"≤ {self.factor} × + {self.allowance_ms} ms"

    def build_finding(
        self, name: str, pairs: Sequence[tuple[float, float]], **details: object
    ) -> Finding:
        """Return the times of the API calls as shares of their limits.

        Each pair contains the time of an API call and the time of the baseline, in seconds.
        """
        shares = [
            call / (self.factor * baseline + self.allowance_ms / 1000) for call, baseline in pairs
        ]
        share, spread = median_and_spread(shares)
        medians = {
            "product_ms": _median_ms([call for call, _ in pairs]),
            "baseline_ms": _median_ms([baseline for _, baseline in pairs]),
        }
        unit = "of the target"
        return Finding(name, share, unit, self.bar, share <= 1, spread, medians | details)


def is_full_size() -> bool:
    return os.environ.get("SIZE") == "full"


def measure_seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def alternate(
    product: Callable[[], float], baseline: Callable[[], float], *, rounds: int = ROUNDS
) -> list[tuple[float, float]]:
    """Measure Pressroom and a baseline alternately, and return one pair of results per round.

    The measurements alternate, so that other programs slow down Pressroom and the baseline equally.
    The functions ``product`` and ``baseline`` are called once before the first round, to warm up
    caches.
    """
    product()
    baseline()
    pairs = []
    for number in range(rounds):
        # Measure the product first in every second round, and the baseline first in all other
        # rounds.
        if number % 2:
            baseline_result = baseline()
            pairs.append((product(), baseline_result))
        else:
            product_result = product()
            pairs.append((product_result, baseline()))
    return pairs


def median_and_spread(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    return statistics.median(values), (min(values), max(values))


def _median_ms(seconds: Sequence[float]) -> float:
    return round(1000 * statistics.median(seconds), 2)


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile of the values, for example the 99th if ``share`` is 0.99."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
