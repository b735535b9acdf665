"""The table of retention periods in docs/day-two.md."""

from tests.support.documents.markdown import ROOT

TABLE_HEAD = "| table | kept | in `PRESSROOM_RETENTION` |\n|---|---|---|\n"


def read_retention_table() -> dict[str, tuple[str, str]]:
    """Return the period and the setting of each row, by the name of the rule or table."""
    _, _, table = (ROOT / "docs" / "day-two.md").read_text().partition(TABLE_HEAD)
    lines = [line.strip("| ").split("|") for line in table.partition("\n\n")[0].splitlines()]
    return {
        name.strip(" `"): (period.strip(), "".join(setting).strip())
        for name, period, *setting in lines
    }
