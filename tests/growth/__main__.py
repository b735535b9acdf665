"""Compares Pressroom's speed on databases of different sizes (``make bench NAME=growth``).

The command ``python -m tests.growth --sizes 1,10 --keep FOLDER`` compares a database of 2 million
subscriptions with a database of 20 million subscriptions, and takes half an hour.
"""

import argparse
import sys

from benchmarks.findings import print_findings, print_summary, quieten_log
from benchmarks.kept_results import GROWTH, store_results
from benchmarks.measure import is_full_size
from benchmarks.report import write_report
from tests.growth import comparison


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.growth")
    parser.add_argument(
        "--sizes",
        default="1,10" if is_full_size() else "0.1,1",
        help="the sizes of the compared databases; size 1 has 2 million subscriptions",
    )
    parser.add_argument("--keep", help="a folder in which the filled databases are kept")
    options = parser.parse_args(arguments)
    quieten_log()
    sizes = [float(size) for size in options.sizes.split(",")]
    findings = comparison.compare_sizes(sizes, keep=options.keep)
    print_findings(findings)
    store_results(GROWTH, GROWTH, " and ".join(f"{size:g} ×" for size in sizes), findings)
    write_report()
    print_summary(findings)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
