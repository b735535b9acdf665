"""docs/performance.md and its picture, from the findings of one run."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
# Text as text: the picture stays small, readable and the same from run to run.
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "pressroom"

from matplotlib import pyplot  # noqa: E402 - after its back end is chosen

DOCS = Path(__file__).parents[1] / "docs"


def write_report(record: dict[str, Any]) -> None:
    _draw(record["findings"], DOCS / "performance.svg")
    (DOCS / "performance.md").write_text(_page(record))


def _page(record: dict[str, Any]) -> str:
    machine = record["machine"]
    rows = [
        f"| {finding['name']} | {finding['value']:.2f} {finding['unit']} "
        f"| {finding['spread'][0]:.2f} – {finding['spread'][1]:.2f} "
        f"| {finding['bar']} | {'yes' if finding['met'] else '**no**'} | {_details(finding)} |"
        for finding in record["findings"]
    ]
    return "\n".join(
        [
            "# Performance",
            "",
            "Written by `make bench`; don't edit. Each figure is the median of at least three",
            "rounds in which product and baseline took turns in one run, with the smallest and",
            "largest round beside it. Absolute times say more of the machine than of Pressroom.",
            "",
            (
                f"Measured on {record['at'][:10]}: {machine['system']}, {machine['cores']} cores, "
                f"Python {machine['python']}, {record['size']} size."
            ),
            "",
            "![Ratios and their bars](performance.svg)",
            "",
            "| what | median | rounds | bar | met | details |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _details(finding: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in finding["details"].items())


def _draw(findings: list[dict[str, Any]], file: Path) -> None:
    ratios = [finding for finding in findings if finding["unit"] == "×"][::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.6 + 0.45 * len(ratios)), layout="constrained")
    values = [finding["value"] for finding in ratios]
    errors = [
        [finding["value"] - finding["spread"][0] for finding in ratios],
        [finding["spread"][1] - finding["value"] for finding in ratios],
    ]
    axes.barh([finding["name"] for finding in ratios], values, xerr=errors, color="#4c78a8")
    axes.axvline(1.0, color="#333", linewidth=1)
    axes.set_xlabel("× baseline (1 = the baseline itself)")
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
