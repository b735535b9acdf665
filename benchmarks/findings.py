"""Prints and stores the results of benchmarks."""

import logging
import os
import platform
from collections.abc import Sequence

import structlog

from benchmarks import kept_results
from benchmarks.measure import Finding, is_full_size
from benchmarks.report import write_report
from core import clock


def quieten_log() -> None:
    """Log only warnings and errors, because many other messages would make results hard to find."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def print_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        details = ", ".join(f"{key} {value}" for key, value in finding.details.items())
        print(f"{finding.line()}\n    {details}", flush=True)


def report_findings(findings: Sequence[Finding], *, kept_as: str | None) -> None:
    """Print how many results meet their target, and store the results.

    Args:
        kept_as: the kind of the results, which is ``kept_results.OTHERS`` or
            ``kept_results.GROWTH``. If ``kept_as`` is ``None``, no results are stored.
    """
    missed = [finding for finding in findings if not finding.met]
    print(f"\n{len(findings) - len(missed)} of {len(findings)} targets met.")
    if kept_as is not None:
        _keep_findings(findings, kept_as)


def _keep_findings(findings: Sequence[Finding], kept_as: str) -> None:
    about = {
        "at": clock.format_timestamp(clock.now()),
        "size": "full" if is_full_size() else "short",
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
        },
    }
    file = kept_results.write_record(kept_as, about, [finding.record() for finding in findings])
    write_report(
        kept_results.read_record(kept_results.OTHERS), kept_results.read_record(kept_results.GROWTH)
    )
    print(f"Stored in {file.name}, docs/performance.md, docs/growth.md and build/benchmarks.")
