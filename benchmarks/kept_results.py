"""Stores and reads the results of the latest benchmark runs.

The first line of a result file describes the benchmark run. Each other line contains one result.
"""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
GROWTH = "growth"
OTHERS = "benchmarks"


def read_record(kind: str) -> dict[str, Any] | None:
    """Return the stored results of ``kind``, or ``None`` before the first run.

    Args:
        kind: ``GROWTH`` or ``OTHERS``.
    """
    file = RESULTS / f"{kind}.jsonl"
    if not file.exists():
        return None
    about, *findings = map(json.loads, file.read_text().splitlines())
    return {**about, "findings": findings}


def write_record(kind: str, about: dict[str, Any], findings: list[dict[str, Any]]) -> Path:
    """Replace the stored results of ``kind``.

    Args:
        kind: ``GROWTH`` or ``OTHERS``.
        about: the time and the machine of the benchmark run.
    """
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{kind}.jsonl"
    lines = [json.dumps(entry, ensure_ascii=False) for entry in (about, *findings)]
    file.write_text("\n".join(lines) + "\n")
    return file
