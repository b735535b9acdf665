"""Writes the benchmark results to docs/performance.md and to the table in docs/growth.md.

Charts that aren't part of a document are written to build/benchmarks.
"""

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

from benchmarks.growth_page import write_load_table
from benchmarks.kept_results import GROWTH, OTHERS, read_results
from benchmarks.measure import NO_BAR

mpl.use("svg")
# Store labels in SVG files as text, so that the files are small, readable and reproducible.
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "pressroom"

from matplotlib import pyplot  # noqa: E402 - the back end must be chosen before the import

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PICTURES = ROOT / "build" / "benchmarks"
_HEAD = """\
# Performance

Don't edit this page, because `make bench` writes it. Most figures are the median of at least three
rounds. × is Pressroom's time or rate divided by the baseline's. A baseline is a small program
without Pressroom that does the same work. "0.8 of the target" means that Pressroom needs 0.8 times
the time that the target allows. Absolute times depend on the machine.

`benchmarks/<name>.py` describes a benchmark. `make bench NAME=queue SIZE=full` runs one
benchmark at full size."""
_GROWTH = """\
## Growth

`make bench NAME=growth` measures API calls and maintenance on ten times the rows, for the owner
with the most rows. Size 1 has 2 M subscriptions, 1 M jobs, 2 M ledger entries and 3 M events. Work
that grows with accounts or members is compared per account or member."""

_Finding = dict[str, Any]
# Maps the name and target of a table row in docs/performance.md to the row's results.
_Groups = dict[tuple[str, str], list[_Finding]]


def write_report() -> None:
    """Write the documents and charts that show the stored benchmark results."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    results, growth = read_results(OTHERS), read_results(GROWTH)
    parts = [_HEAD]
    if results:
        parts += _build_figures(results)
        ratios = [each for each in results if each["unit"] == "×"]
        _draw({each["name"]: [each] for each in ratios}, PICTURES / "ratios.svg")
    if growth:
        parts += _build_growth(growth)
        for (group, _), findings in _group_findings(growth).items():
            cases = {each["name"]: [each] for each in findings}
            _draw(cases, PICTURES / f"growth-{group.replace(' ', '-')}.svg")
    (DOCS / "performance.md").write_text("\n\n".join(parts) + "\n")
    if results and growth:
        write_load_table(results, growth)


def _build_figures(results: list[_Finding]) -> list[str]:
    groups = _group_findings(results)
    ratios = {
        f"{_format_name(name, findings)} ({bar})": findings
        for (name, bar), findings in groups.items()
        if findings[0]["unit"] == "×"
    }
    _draw(ratios, DOCS / "performance.svg")
    return [
        _format_machines(results),
        "![Ratios by benchmark and target](performance.svg)",
        _build_table(groups),
        *_list_missed(groups),
    ]


def _build_growth(results: list[_Finding]) -> list[str]:
    groups = _group_findings(results)
    return [_GROWTH, _format_machines(results), _build_table(groups), *_list_missed(groups)]


def _group_findings(results: list[_Finding]) -> _Groups:
    groups: _Groups = {}
    for finding in results:
        # Results of the growth benchmark are grouped by ``details["group"]``, and all other results
        # by the part of their name before the colon.
        name = finding["details"].get("group") or finding["name"].partition(":")[0]
        groups.setdefault((name, finding["bar"]), []).append(finding)
    return groups


def _build_table(groups: _Groups) -> str:
    rows = (
        (
            _format_name(name, findings),
            _format_range(findings),
            bar,
            _format_met(findings),
            # All results of a row come from the same run.
            f"{findings[0]['date']}, {findings[0]['size']}",
        )
        for (name, bar), findings in groups.items()
    )
    lines = (f"| {' | '.join(row)} |" for row in rows)
    head = "| benchmark | median | target | met | date and size |"
    return "\n".join([head, "|---|---|---|---|---|", *lines])


def _list_missed(groups: _Groups) -> list[str]:
    """Return a Markdown list of the results that miss their target.

    The list omits results that have a row of their own in the results table, because this row shows
    whether the result meets the target. A row for several results shows only how many results meet
    the target.
    """
    missed = {
        group: misses
        for group, findings in groups.items()
        if len(findings) > 1 and (misses := [each for each in findings if not each["met"]])
    }
    if not missed:
        return []
    lines = [
        f"- {name} ({bar}): "
        + "; ".join(
            f"{each['name'].removeprefix(f'{name}: ')} {_format_range([each])}" for each in misses
        )
        for (name, bar), misses in missed.items()
    ]
    return [
        "The following results in rows with several results miss their target:",
        "\n".join(lines),
    ]


def _format_name(name: str, findings: list[_Finding]) -> str:
    return str(findings[0]["name"]) if len(findings) == 1 else name


def _format_range(findings: list[_Finding]) -> str:
    smallest, largest = (
        _format_number(choose(each["value"] for each in findings)) for choose in (min, max)
    )
    values = smallest if smallest == largest else f"{smallest} to {largest}"
    return f"{values} {findings[0]['unit']}".strip()


def _format_number(value: float) -> str:
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


def _format_met(findings: list[_Finding]) -> str:
    if findings[0]["bar"] == NO_BAR:
        return "–"
    met = sum(each["met"] for each in findings)
    if met == len(findings):
        return "yes" if met == 1 else f"all {met}"
    return "**no**" if len(findings) == 1 else f"**{met} of {len(findings)}**"


def _format_machines(results: list[_Finding]) -> str:
    """Return a line for each machine, with the days of its measurements."""
    days: dict[str, set[str]] = {}
    for result in results:
        days.setdefault(result["machine"], set()).add(result["date"])
    return "\n".join(
        f"Measured on {', '.join(sorted(dates))}: {machine}." for machine, dates in days.items()
    )


def _draw(groups: dict[str, list[_Finding]], file: Path) -> None:
    """Draw a chart with one horizontal line per group of results.

    Each line extends from the smallest to the largest result in its group. A result is Pressroom's
    time or rate divided by a baseline program's time or rate, or the time with a large database
    divided by the time with a small database.
    """
    figure, axes = pyplot.subplots(figsize=(8, 0.6 + 0.25 * len(groups)), layout="constrained")
    names = [*groups][::-1]
    smallest, largest = (
        [choose(each["value"] for each in groups[name]) for name in names] for choose in (min, max)
    )
    axes.hlines(names, smallest, largest, color="#4c78a8")
    axes.plot([*smallest, *largest], [*names, *names], ".", color="#4c78a8")
    axes.axvline(1.0, color="#333", linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel("ratio to the baseline, or to the smallest database")
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
    # Remove comments and line breaks to make the SVG file smaller.
    file.write_text(re.sub(r"<!--.*?-->|\s+", " ", file.read_text()).strip() + "\n")
