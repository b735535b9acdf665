import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

ROUNDS = 5


@dataclass(frozen=True)
class Finding:
    """A ratio of product to baseline, or one figure where there is no baseline."""

    name: str
    value: float
    unit: str  # "×" for a ratio
    bar: str
    met: bool
    # Smallest and largest of the rounds.
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
        """Return it as it is kept: more than four digits are luck."""
        value, *spread = (float(f"{each:.4g}") for each in (self.value, *self.spread))
        return asdict(self) | {"value": value, "spread": spread}


def full_size() -> bool:
    return os.environ.get("SIZE") == "full"


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def alternate(
    product: Callable[[], float], baseline: Callable[[], float], *, rounds: int = ROUNDS
) -> list[tuple[float, float]]:
    """Measure both in turns, so that whatever else the machine does falls on both."""
    product(), baseline()  # warm both up
    pairs = []
    for number in range(rounds):
        # The first changes, so that neither always finds the machine as the other left it.
        if number % 2:
            found = baseline()
            pairs.append((product(), found))
        else:
            found = product()
            pairs.append((found, baseline()))
    return pairs


def median_and_spread(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    return statistics.median(values), (min(values), max(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of them do not exceed, by nearest rank."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
