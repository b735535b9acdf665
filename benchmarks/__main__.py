"""The command ``python -m benchmarks [NAME …]``, which runs benchmarks and reports the results.

The growth benchmark is in the package ``tests``, because it uses the API calls of the security
tests. Run the growth benchmark with ``python -m tests.growth``.
"""

import argparse
import sys
from importlib import import_module

from benchmarks.findings import print_findings, print_summary, quieten_log
from benchmarks.kept_results import OTHERS, store_results
from benchmarks.measure import Finding, is_full_size
from benchmarks.report import write_report

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
    "reports",
    "bulk-add",
    "import-1m",
    "import-xlsx",
    "export-1m",
    "journeys",
    "offline-writer",
    "cold-start",
    "command-line",
    "memory",
)
# Slow benchmarks, which ``make bench`` skips unless ``SIZE=full`` is set or ``NAME`` selects one.
FULL_SIZE_NAMES = ("everything", "crowded")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME")
    names: list[str] = parser.parse_args(arguments).names
    quieten_log()
    known = (*NAMES, *FULL_SIZE_NAMES)
    unknown = set(names) - {*known}
    if unknown:
        print(f"No benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}.")
        return 2
    findings: list[Finding] = []
    for name in names or (known if is_full_size() else NAMES):
        module = import_module(f"benchmarks.{name.replace('-', '_')}")
        results: list[Finding] = module.run()
        print_findings(results)
        findings += results
        if not names:
            # Store the results now, so that they aren't lost if the next benchmark fails.
            store_results(OTHERS, name, "full" if is_full_size() else "short", results)
            write_report()
    print_summary(findings)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
