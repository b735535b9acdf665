"""Stores and reads the results of the latest benchmark runs.

Each line of a result file is a JSON object. The first line describes the benchmark run, and each of
the following lines contains one result.
"""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
GROWTH = "growth"
OTHERS = "benchmarks"


def read_record(kind: str) -> dict[str, Any] | None:
    """Return the results of the latest benchmark run, or ``None`` before the first run.

    Args:
        kind: ``GROWTH`` for the growth benchmark, or ``OTHERS`` for all other benchmarks.
    """
    file = RESULTS / f"{kind}.jsonl"
    if not file.exists():
        return None
    about, *findings = map(json.loads, file.read_text().splitlines())
    return {**about, "findings": findings}


def write_record(kind: str, about: dict[str, Any], findings: list[dict[str, Any]]) -> Path:
    """Replace the stored results of the previous benchmark run.

    Args:
        kind: ``GROWTH`` for the growth benchmark, or ``OTHERS`` for all other benchmarks.
        about: the time and the machine of the benchmark run.
    """
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{kind}.jsonl"
    lines = [json.dumps(entry, ensure_ascii=False) for entry in (about, *findings)]
    file.write_text("\n".join(lines) + "\n")
    return file
