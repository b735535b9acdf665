"""The findings of the newest runs, as ``python -m benchmarks`` keeps them: one line a figure."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
# The names of their files: that of growth, and that of all other benchmarks.
GROWTH = "growth"
OTHERS = "benchmarks"


def newest(kind: str) -> dict[str, Any] | None:
    """Return the newest record of a kind; None before the first."""
    file = RESULTS / f"{kind}.jsonl"
    if not file.exists():
        return None
    about, *findings = map(json.loads, file.read_text().splitlines())
    return {**about, "findings": findings}


def keep(kind: str, about: dict[str, Any], findings: list[dict[str, Any]]) -> Path:
    """Replace the record of a kind.

    Args:
        about: when and where it ran; the file's first line.
    """
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{kind}.jsonl"
    lines = [json.dumps(each, ensure_ascii=False) for each in (about, *findings)]
    file.write_text("\n".join(lines) + "\n")
    return file
