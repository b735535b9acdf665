"""``python -m benchmarks [NAME …]``: run them, print the ratios, keep and draw them."""

import json
import os
import platform
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.measure import Finding, full_size
from benchmarks.report import write_report
from core import clock

RESULTS = Path(__file__).parent / "results"
NAMES = (
    "queue",
    "upload",
    "upload-many",
    "bodies",
    "members-page",
    "consume",
    "ledger-page",
    "abandoned-orders",
    "bulk-add",
    "import-1m",
    "export-1m",
    "quality",
    "offline-writer",
    "cold-start",
    "memory",
)


def main(names: list[str]) -> int:
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"No benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}.")
        return 2
    findings = [finding for name in names or NAMES for finding in _run(name)]
    missed = [finding for finding in findings if not finding.met]
    print(f"\n{len(findings) - len(missed)} of {len(findings)} bars met.")
    if not names:
        _keep(findings)
    return 0


def _run(name: str) -> list[Finding]:
    module = import_module(f"benchmarks.{name.replace('-', '_')}")
    run: Callable[[], list[Finding]] = module.run
    findings = run()
    for finding in findings:
        details = ", ".join(f"{key} {value}" for key, value in finding.details.items())
        print(f"{finding.line()}\n    {details}", flush=True)
    return findings


def _keep(findings: list[Finding]) -> None:
    now = clock.now()
    RESULTS.mkdir(exist_ok=True)
    record: dict[str, Any] = {
        "at": clock.iso(now),
        "size": "full" if full_size() else "short",
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "findings": [finding.record() for finding in findings],
    }
    file = RESULTS / f"{now:%Y-%m-%d}.json"
    file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    write_report(record)
    print(f"Kept in {file.name} and docs/performance.md.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
