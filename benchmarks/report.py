"""docs/performance.md, its pictures and a table of docs/growth.md, from the newest findings."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.growth_page import write_carried

mpl.use("svg")
# Text as text: the picture stays small, readable and the same from run to run.
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "pressroom"

from matplotlib import pyplot  # noqa: E402 - after its back end is chosen

DOCS = Path(__file__).parents[1] / "docs"


def write_report(record: dict[str, Any] | None, growth: dict[str, Any] | None) -> None:
    """Write what was found of all benchmarks, and of growth, so far as they ever ran."""
    lines = ["# Performance", ""]
    if record is not None:
        _draw(record["findings"], DOCS / "performance.svg")
        lines += _page(record)
    if growth is not None:
        lines += _growth(growth)
    (DOCS / "performance.md").write_text("\n".join(lines))
    if record is not None and growth is not None:
        write_carried(record, growth)


def _page(record: dict[str, Any]) -> list[str]:
    rows = [
        f"| {finding['name']} | {finding['value']:.2f} {finding['unit']} "
        f"| {finding['spread'][0]:.2f} – {finding['spread'][1]:.2f} "
        f"| {finding['bar']} | {_is_met(finding)} | {_details(finding)} |"
        for finding in record["findings"]
    ]
    return [
        "Written by `make bench`; don't edit. Each figure is the median of at least three",
        "rounds in which product and baseline took turns in one run, with the smallest and",
        "largest round beside it. Absolute times say more of the machine than of Pressroom.",
        "",
        f"{_measured(record)}, {record['size']} size.",
        "",
        "![Ratios and their bars](performance.svg)",
        "",
        "| what | median | rounds | bar | met | details |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
    ]


def _measured(record: dict[str, Any]) -> str:
    machine = record["machine"]
    return (
        f"Measured on {record['at'][:10]}: {machine['system']}, {machine['cores']} cores, "
        f"Python {machine['python']}"
    )


def _is_met(finding: dict[str, Any]) -> str:
    return "yes" if finding["met"] else "**no**"


# -- growth --------------------------------------------------------------------------------------


def _growth(record: dict[str, Any]) -> list[str]:
    lines = [
        "## Growth",
        "",
        "What each route and each kind of upkeep takes on a database with more rows: the same",
        "call, or the same work that is due, by the owner who has the most of everything. At 1",
        "there are 2 M subscriptions, 1 M jobs, 2 M entries of the ledger and 3 M events. A check",
        "of the ledger looks at each account, and the total of a filter counts each member that",
        "it lets through: these are compared by account and by member. Written by",
        "`make bench NAME=growth`; don't edit.",
        "",
        f"{_measured(record)}.",
        "",
    ]
    by_group: dict[str, list[dict[str, Any]]] = {}
    for finding in record["findings"]:
        by_group.setdefault(finding["details"]["group"], []).append(finding)
    for group, findings in by_group.items():
        picture = f"growth-{group.replace(' ', '-')}.svg"
        _draw(findings, DOCS / picture, "× the smallest size (1 = no growth)")
        lines += [
            f"### {group.capitalize()}",
            "",
            f"![Growth of {group}]({picture})",
            "",
            "| what | size | growth | rounds | bar | met | ms at the smallest size | ms |",
            "|---|---|---|---|---|---|---|---|",
            *(_growth_row(finding) for finding in findings),
            "",
        ]
    return lines


def _growth_row(finding: dict[str, Any]) -> str:
    (low, high), details = finding["spread"], finding["details"]
    by = "" if details["by"] == "run" else f" by {details['by']}"
    cells = [
        finding["name"],
        details["size"],
        f"{finding['value']:.2f} ×{by}",
        f"{low:.2f} – {high:.2f}",
        finding["bar"],
        _is_met(finding),
        details["ms_smallest"],
        details["ms"],
    ]
    return f"| {' | '.join(map(str, cells))} |"


def _details(finding: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in finding["details"].items())


def _draw(
    findings: list[dict[str, Any]], file: Path, label: str = "× baseline (1 = the baseline itself)"
) -> None:
    ratios = [finding for finding in findings if finding["unit"] == "×"][::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.6 + 0.45 * len(ratios)), layout="constrained")
    values = [finding["value"] for finding in ratios]
    errors = [
        [finding["value"] - finding["spread"][0] for finding in ratios],
        [finding["spread"][1] - finding["value"] for finding in ratios],
    ]
    axes.barh([finding["name"] for finding in ratios], values, xerr=errors, color="#4c78a8")
    axes.axvline(1.0, color="#333", linewidth=1)
    axes.set_xlabel(label)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
