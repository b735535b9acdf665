"""``python -m benchmarks [NAME …]``: run them, print the ratios, keep and draw them.

``growth`` takes half an hour at full size, so it runs by its name alone:
``python -m benchmarks growth --sizes 1,10 --keep FOLDER``.
"""

import argparse
import logging
import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import structlog

from benchmarks import kept_results
from benchmarks.measure import Finding, full_size
from benchmarks.report import write_report
from core import clock

NAMES = (
    "queue",
    "open-snapshot",
    "upload",
    "upload-many",
    "isolation",
    "members-page",
    "consume",
    "ledger-page",
    "webhooks",
    "bulk-add",
    "import-1m",
    "export-1m",
    "offline-writer",
    "cold-start",
    "command-line",
    "memory",
)
GROWTH = "growth"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--sizes", default="1,10" if full_size() else "0.1,1", help="of growth; 1: 2 M subscribers"
    )
    parser.add_argument("--keep", help="folder in which the databases of growth stay")
    options = parser.parse_args(arguments)
    # Owners are created by the thousand, and each is logged.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    names: list[str] = options.names
    unknown = set(names) - {*NAMES, GROWTH}
    if unknown:
        print(f"No benchmark {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}, {GROWTH}.")
        return 2
    if names == [GROWTH]:
        sizes = [float(size) for size in options.sizes.split(",")]
        return _report(_run(GROWTH, sizes=sizes, keep=options.keep), kept_as=kept_results.GROWTH)
    findings = [finding for name in names or NAMES for finding in _run(name)]
    return _report(findings, kept_as=None if names else kept_results.OTHERS)


def _report(findings: list[Finding], *, kept_as: str | None) -> int:
    """Say how many bars are met, and keep the findings as those of this kind."""
    missed = [finding for finding in findings if not finding.met]
    print(f"\n{len(findings) - len(missed)} of {len(findings)} bars met.")
    if kept_as is not None:
        _keep(findings, kept_as)
    return 0


def _run(name: str, **options: Any) -> list[Finding]:
    module = import_module(f"benchmarks.{name.replace('-', '_')}")
    run: Callable[[], list[Finding]] = partial(module.run, **options)
    findings = run()
    for finding in findings:
        details = ", ".join(f"{key} {value}" for key, value in finding.details.items())
        print(f"{finding.line()}\n    {details}", flush=True)
    return findings


def _keep(findings: list[Finding], kept_as: str) -> None:
    about = {
        "at": clock.iso(clock.now()),
        "size": "full" if full_size() else "short",
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        },
    }
    file = kept_results.keep(kept_as, about, [finding.record() for finding in findings])
    write_report(kept_results.newest(kept_results.OTHERS), kept_results.newest(kept_results.GROWTH))
    print(f"Kept in {file.name}, docs/performance.md, docs/growth.md and build/benchmarks.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
