"""Reads the table of retention periods in docs/day-two.md."""

from tests.support.documents.markdown import ROOT

TABLE_HEAD = "| table | kept | name in `PRESSROOM_RETENTION` |\n|---|---|---|\n"


def read_retention_table() -> dict[str, tuple[str, str]]:
    """Map each documented database table or column to its retention period and its setting."""
    _, _, table = (ROOT / "docs" / "day-two.md").read_text().partition(TABLE_HEAD)
    lines = [line.strip("| ").split("|") for line in table.partition("\n\n")[0].splitlines()]
    return {
        name.strip(" `"): (period.strip(), "".join(setting).strip())
        for name, period, *setting in lines
    }
