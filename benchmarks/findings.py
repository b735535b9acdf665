"""Prints the results of benchmarks."""

import logging
from collections.abc import Sequence

import structlog

from benchmarks.measure import Finding


def quieten_log() -> None:
    """Log only warnings and errors, because many other messages would make results hard to find."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


def print_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        details = ", ".join(f"{key} {value}" for key, value in finding.details.items())
        print(f"{finding.line()}\n    {details}", flush=True)


def print_summary(findings: Sequence[Finding]) -> None:
    """Print how many results meet their target."""
    met = sum(finding.met for finding in findings)
    print(f"\n{met} of {len(findings)} targets met.")
