"""Writes the table in docs/growth.md, which shows the load that one machine can carry."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "growth.md"
_BEGIN = "<!-- carried: begin -->"
_END = "<!-- carried: end -->"

_Finding = dict[str, Any]


def write_load_table(results: list[_Finding], growth: list[_Finding]) -> None:
    """Replace the table between ``_BEGIN`` and ``_END`` in docs/growth.md.

    Args:
        results: the results of all benchmarks except the growth benchmark.
        growth: the results of the growth benchmark.
    """
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    table = "\n".join(_build_table(results, growth))
    PAGE.write_text(f"{before}{_BEGIN}\n\n{table}\n\n{_END}{after}")


def _build_table(results: list[_Finding], growth: list[_Finding]) -> list[str]:
    size = growth[-1]["details"]["size"]
    rows = (
        ("charges per second", _join_figures(_charge_rates(results)), "`make bench NAME=consume`"),
        (
            "new members per second",
            _join_figures(_import_rates(results)),
            "`make bench NAME=bulk-add`, `import-1m`",
        ),
        (
            "members exported per second",
            _join_figures(_rates(results, r"export-1m: .*", "product_per_s", "{}")),
            "`make bench NAME=export-1m`",
        ),
        (
            f"duration of a call on ten times the data (size {size})",
            _format_growth(growth),
            "`make bench NAME=growth`",
        ),
    )
    return [
        "| what | measured on two cores | by |",
        "|---|---|---|",
        *(f"| {what} | {figures} | {command} |" for what, figures, command in rows),
    ]


def _charge_rates(results: list[_Finding]) -> Iterator[str]:
    yield from _rates(results, "consume: one hot account", "product_per_s", "{} for one account")
    yield from _rates(results, "consume: 1,000 accounts", "product_per_s", "{} for 1,000 accounts")


def _import_rates(results: list[_Finding]) -> Iterator[str]:
    yield from _rates(
        results, "bulk-add: .* new members", "product_per_s", "{} members in one call"
    )
    yield from _rates(
        results, "import-1m: .* from CSV.gz", "product_per_s", "{} members from a file"
    )
    yield from _rates(
        results, "import-1m: .* by 2 .*", "product_per_s", "{} members with two processes"
    )


def _rates(results: list[_Finding], name: str, detail: str, words: str) -> Iterator[str]:
    """Yield the rate of each result whose name matches ``name``, rounded to two significant digits.

    Args:
        name: a regular expression for the names of the results.
        detail: the key of the rate in the dictionary ``details`` of each result.
        words: a format string into which each rate is inserted.
    """
    for finding in results:
        if re.fullmatch(name, finding["name"]):
            rate = float(f"{finding['details'][detail]:.2g}")
            yield words.format(f"{rate:,.0f}")


def _join_figures(figures: Iterator[str]) -> str:
    return ", ".join(figures) or "not measured"


def _format_growth(growth: list[_Finding]) -> str:
    met = sum(finding["met"] for finding in growth)
    others = "; the [table](performance.md#growth) names the others" if met < len(growth) else ""
    cases = f"{met} of {len(growth)} cases{others}"
    return f"at most 1.3 times the duration on the smallest data in {cases}"
