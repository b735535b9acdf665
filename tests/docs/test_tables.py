"""Tables of the documents that name what the code has: none lacks a row, and none has one more."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from benchmarks import kept_results
from benchmarks.growth_page import PAGE, carried_table
from core.lanes import Lane
from core.scopes import GRANTABLE
from services.events.catalogue import EventType
from services.feed.catalogue import CATALOGUE
from tests.docs import markdown
from workers.queues.serving import serving
from workers.tasks.table import TASKS

pytestmark = pytest.mark.check

DOCS = markdown.ROOT / "docs"
UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}


def test_growth_has_the_figures_of_the_newest_runs() -> None:
    record, growth = (
        kept_results.newest(each) for each in (kept_results.OTHERS, kept_results.GROWTH)
    )
    assert record is not None
    assert growth is not None
    assert "\n".join(carried_table(record, growth)) in PAGE.read_text()


def test_each_kind_of_upkeep_is_in_the_operators_table_with_its_interval() -> None:
    rows = table_after("## Upkeep", DOCS / "operations.md")
    assert {name: interval(every) for name, every, _ in rows} == {
        f"`{kind.name}`": kind.every for kind in TASKS.upkeep
    }


def test_each_lane_is_in_the_operators_table_with_its_limit() -> None:
    rows = table_after("## Scaling", DOCS / "operations.md")
    named = {name.strip("`"): limit for name, _, limit in rows}
    assert named.keys() == {*Lane}
    for lane in {*map(Lane, named)} - {Lane.MEDIA}:
        assert named[lane] == str(serving([lane]).limits[lane])


def test_each_scope_that_people_may_give_is_in_the_table_of_oauth() -> None:
    rows = table_after("## Scopes", DOCS / "oauth.md")
    assert {name.strip("`") for name, _ in rows} == GRANTABLE


def test_each_event_of_an_account_is_in_the_table_of_accounts() -> None:
    rows = table_after("## What happened to an account", DOCS / "accounts.md")
    assert {each for types, *_ in rows for each in re.findall(r"`(.+?)`", types)} == {*EventType}


def test_each_event_of_the_feed_is_in_the_table_of_events_with_its_scope() -> None:
    named = {}
    for types, scope in table_after("## Types", DOCS / "events.md"):
        subject = ""
        for each in re.findall(r"`(.+?)`", types):
            subject = subject if each.startswith(".") else each.partition(".")[0]
            named[f"{subject}.{each.rpartition('.')[2]}"] = scope
    assert named == {
        each: f"`{entry.scope}`" if entry.scope else "a session or an unrestricted key"
        for each, entry in CATALOGUE.items()
    }


def table_after(heading: str, document: Path) -> list[list[str]]:
    """The rows of the first table below a heading, without the table's own head."""
    _, _, below = document.read_text().partition(f"\n{heading}\n")
    found = re.search(r"^\|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", below, re.MULTILINE)
    assert found is not None, heading
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        for row in found[1].splitlines()
    ]


def interval(words: str) -> timedelta:
    """Of words such as "hour" and "30 seconds"."""
    number, _, unit = words.rpartition(" ")
    return timedelta(seconds=int(number or 1) * UNITS[unit.removesuffix("s")])
