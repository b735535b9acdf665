"""Tests of the retention periods in docs/day-two.md and in the setting PRESSROOM_RETENTION."""

from datetime import timedelta

import pytest

from core.settings.notations import DEFAULT_RETENTION, MIN_DAYS, Retained, parse_retention
from models.declarative import Model
from services.accounts.mailed_tokens import TOKEN_LIFETIMES, Purpose
from services.jobs.records import RETRY_INPUT_RETENTION
from services.privacy.retention import RULES
from services.subscriptions.bulk_files import BULK_FILE_RETENTION
from tests.support.documents.retention_table import read_retention_table


def test_every_table_has_a_documented_retention_period() -> None:
    names = {rule.name for rule in RULES}
    assert names <= read_retention_table().keys()
    tables_with_rules = {rule.model.__tablename__ for rule in RULES}
    names_without_rule = read_retention_table().keys() - names
    assert not names_without_rule & tables_with_rules
    assert tables_with_rules | names_without_rule == {
        mapper.class_.__tablename__ for mapper in Model.registry.mappers
    }


def test_retention_documentation_matches_rules_defaults_and_minimums() -> None:
    defaults = parse_retention(DEFAULT_RETENTION)
    assert isinstance(defaults, dict)

    def format_days(count: int) -> str:
        return f"{count} day{'s' * (count > 1)} "

    table = read_retention_table()
    assert list(table) == sorted(table, key=lambda name: f"{name}`")
    for rule in RULES:
        documented_period, setting = table.pop(rule.name)
        period = rule.period
        expected = ""
        if isinstance(period, Retained):
            expected = f"`{period}`, at least {MIN_DAYS[period]}"
            assert documented_period.startswith(format_days(defaults[period])), rule.name
        elif period:
            assert documented_period.startswith(format_days(period.days)), rule.name
        assert setting == expected, rule.name
    assert not [name for name, (_, setting) in table.items() if setting]


def test_retention_setting_changes_only_the_named_periods() -> None:
    defaults = parse_retention(DEFAULT_RETENTION)
    assert isinstance(defaults, dict)
    assert set(defaults) == set(Retained)
    assert parse_retention("") == defaults
    changed_periods = {Retained.JOBS: 60, Retained.EXPORTS: 7}
    assert parse_retention(" jobs=60 , exports=7,") == defaults | changed_periods


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("job=5", "'job=5' is an unknown kind of rows; use one of jobs,"),
        ("jobs", "doesn't have the form jobs=days"),
        ("jobs=", "doesn't have the form jobs=days"),
        ("jobs=-30", "doesn't have the form jobs=days"),
        ("jobs=1e3", "doesn't have the form jobs=days"),
        ("jobs=30.5", "doesn't have the form jobs=days"),
        ("jobs=999999", "doesn't have the form jobs=days"),
        ("jobs=\u0663\u0660", "doesn't have the form jobs=days"),
        ("jobs=30,jobs=40", "jobs occurs twice"),
        ("jobs=6", "the minimum for jobs is 7 days"),
        ("import_changes=89", "the minimum for import_changes is 90 days"),
        ("events=364", "the minimum for events is 365 days"),
    ],
)
def test_invalid_retention_setting_is_rejected_with_its_name(setting: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_retention(setting)


def test_retention_minimums_are_never_shorter_than_promised_periods() -> None:
    minimums = {name: timedelta(days=days) for name, days in MIN_DAYS.items()}
    assert minimums[Retained.JOBS] >= RETRY_INPUT_RETENTION
    assert minimums[Retained.EXPORTS] >= BULK_FILE_RETENTION
    assert minimums[Retained.IMPORTS] >= BULK_FILE_RETENTION
    assert minimums[Retained.STRANGERS] >= TOKEN_LIFETIMES[Purpose.CONFIRM_SUBSCRIPTION]
