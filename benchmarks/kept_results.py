"""The findings of earlier runs, as ``python -m benchmarks`` keeps them."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
# What the names of their files begin with: those of growth, and those of all other benchmarks.
GROWTH = "growth-"
OTHERS = ""


def newest(kind: str) -> dict[str, Any] | None:
    """The newest record of a kind; None before the first."""
    files = sorted(RESULTS.glob(f"{kind}2*.json"))
    record: dict[str, Any] | None = json.loads(files[-1].read_text()) if files else None
    return record
