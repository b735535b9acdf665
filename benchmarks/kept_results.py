"""Stores and reads the latest results of each benchmark.

Each line of a result file is a JSON object with one result. Besides the fields of
``benchmarks.measure.Finding``, a result has these fields:

- ``benchmark``: the name of its benchmark, for example "isolation".
- ``date``: the day of the measurement in UTC, for example "2026-11-30".
- ``size``: "short" or "full". For the growth benchmark, the sizes of its databases.
- ``machine``: the operating system, the number of cores and the Python version.
"""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Finding
from core import clock

RESULTS = Path(__file__).parent / "results"
GROWTH = "growth"
OTHERS = "benchmarks"


def read_results(kind: str) -> list[dict[str, Any]]:
    """Return the stored results.

    Args:
        kind: ``GROWTH`` for the growth benchmark, or ``OTHERS`` for all other benchmarks.
    """
    file = _result_file(kind)
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def store_results(kind: str, benchmark: str, size: str, findings: Sequence[Finding]) -> None:
    """Replace the stored results of one benchmark, and keep the results of all other benchmarks.

    Args:
        kind: ``GROWTH`` for the growth benchmark, or ``OTHERS`` for all other benchmarks.
    """
    measured = {
        "benchmark": benchmark,
        "date": clock.now().date().isoformat(),
        "size": size,
        "machine": (
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}"
        ),
    }
    new = [measured | finding.record() for finding in findings]
    results = read_results(kind)
    names = [result["benchmark"] for result in results]
    position = names.index(benchmark) if benchmark in names else len(names)
    kept = [result for result in results if result["benchmark"] != benchmark]
    lines = [
        json.dumps(result, ensure_ascii=False)
        for result in (*kept[:position], *new, *kept[position:])
    ]
    RESULTS.mkdir(exist_ok=True)
    _result_file(kind).write_text("\n".join(lines) + "\n")


def _result_file(kind: str) -> Path:
    return RESULTS / f"{kind}.jsonl"
