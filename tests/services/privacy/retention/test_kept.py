from datetime import timedelta

import pytest

from core.settings.notations import DEFAULT_RETENTION, MIN_DAYS, Retained, parse_retention
from models.declarative import Model
from services.accounts.mailed_tokens import TOKEN_LIFETIMES, Purpose
from services.jobs.records import KEPT_FOR_RETRY
from services.privacy.kept import KEPT_FOR_GOOD, KEPT_UNTIL, RULES
from services.subscriptions.bulk_files import BULK_FILE_RETENTION
from tests.docs.markdown import ROOT

HEAD = ("| table | kept | in `PRESSROOM_RETENTION` |", "|---|---|---|")


def test_every_table_says_how_long_its_rows_are_kept() -> None:
    ruled = {rule.model for rule in RULES}
    assert not ruled & {*KEPT_UNTIL, *KEPT_FOR_GOOD}
    assert not KEPT_UNTIL.keys() & KEPT_FOR_GOOD
    tables = ruled.union(KEPT_UNTIL, KEPT_FOR_GOOD)
    assert tables == {mapper.class_ for mapper in Model.registry.mappers}


def test_the_operators_page_has_the_same_table() -> None:
    defaults = parse_retention(DEFAULT_RETENTION)
    assert isinstance(defaults, dict)

    def days(count: int) -> str:
        return f"{count} day{'s' * (count > 1)} "

    lines = []
    for rule in RULES:
        kept, setting = rule.words, ""
        if isinstance(rule.period, Retained):
            kept = days(defaults[rule.period]) + rule.words
            setting = f"`{rule.period}`, {MIN_DAYS[rule.period]} at least"
        elif rule.period:
            kept = days(rule.period.days) + rule.words
        lines.append(f"| `{rule.name}` | {kept} | {setting} |")
    for model, why in {**KEPT_UNTIL, **KEPT_FOR_GOOD}.items():
        lines.append(f"| `{model.__tablename__}` | {why} |  |")
    expected = "\n".join([*HEAD, *sorted(lines)])
    assert expected in (ROOT / "docs" / "day-two.md").read_text(), expected


def test_days_are_read_by_their_names_and_the_rest_is_as_by_default() -> None:
    defaults = parse_retention(DEFAULT_RETENTION)
    assert isinstance(defaults, dict)
    assert set(defaults) == set(Retained)
    assert parse_retention("") == defaults
    changed = {Retained.JOBS: 60, Retained.EXPORTS: 7}
    assert parse_retention(" jobs=60 , exports=7,") == defaults | changed


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("job=5", "'job=5' names nothing that is kept; see jobs,"),
        ("jobs", "is not written jobs=days"),
        ("jobs=", "is not written jobs=days"),
        ("jobs=-30", "is not written jobs=days"),
        ("jobs=1e3", "is not written jobs=days"),
        ("jobs=30.5", "is not written jobs=days"),
        ("jobs=999999", "is not written jobs=days"),
        ("jobs=\u0663\u0660", "is not written jobs=days"),
        ("jobs=30,jobs=40", "jobs is given twice"),
        ("jobs=6", "jobs is kept for 7 days at least"),
        ("import_changes=89", "import_changes is kept for 90 days at least"),
        ("events=364", "events is kept for 365 days at least"),
    ],
)
def test_what_can_not_be_is_refused_with_its_name(written: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_retention(written)


def test_nothing_goes_before_what_was_promised_of_it() -> None:
    least = {name: timedelta(days=days) for name, days in MIN_DAYS.items()}
    assert least[Retained.JOBS] >= KEPT_FOR_RETRY
    assert least[Retained.EXPORTS] >= BULK_FILE_RETENTION
    assert least[Retained.IMPORTS] >= BULK_FILE_RETENTION
    assert least[Retained.STRANGERS] >= TOKEN_LIFETIMES[Purpose.CONFIRM_SUBSCRIPTION]
