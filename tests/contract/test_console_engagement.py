"""Tests of the console's page about a list's engagement, and of engagement on other pages."""

import html
import re
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.lists.engagement import answer, record_engagement
from tests.support.lists.measured_lists import MeasuredList, new_measured_list
from tests.support.lists.subscribers import trace_for
from tests.support.people.consoles import (
    OwnerAtConsole,
    forms_of,
    heading,
    read_error,
    read_page,
    rows_of,
)


@pytest.fixture
def measured(stack: Stack, console: OwnerAtConsole) -> MeasuredList:
    """A list in the mode `all`."""
    return new_measured_list(stack, console.api, title="The Daily Demo")


def engagement_path(measured: MeasuredList) -> str:
    return f"/console/lists/{measured.id}/engagement"


def add_clicking_member(measured: MeasuredList, days_ago: int) -> int:
    """Add a member whose last click was on a day, and return the user id."""
    user_id = measured.add_member()
    day = datetime.now(UTC).date() - timedelta(days=days_ago)
    record_engagement(
        *(measured.stack, measured.id, user_id, day),
        numbers=(1, 0, 0, 1),
        days=(day, None, None, day),
    )
    return user_id


def read_mode(measured: MeasuredList) -> str:
    return str(data(measured.client.get(f"/lists/{measured.id}"))["engagement"])


def count_found_members(console: OwnerAtConsole, link: str) -> int:
    """Follow a link to the members page, and return the number of members that it shows."""
    text = console.see(html.unescape(link).removeprefix(console.visitor.stack.api_url))
    [count] = re.findall(r'id="all-found"[^>]*>(\d+)<', text)
    return int(count)


def test_page_counts_members_and_each_row_leads_to_them(
    stack: Stack, console: OwnerAtConsole, measured: MeasuredList
) -> None:
    for days_ago in (0, 30, 31, 91, 180, 365, 181, 366):
        add_clicking_member(measured, days_ago)
    delivered_id, machine_id, refusing_id, agreeing_id = (measured.add_member() for _ in range(4))
    removed_id = measured.add_member()
    data(console.api.delete(f"/subscriptions/{measured.id}/members/{removed_id}"))
    today = datetime.now(UTC).date()
    record_engagement(stack, measured.id, delivered_id, today, numbers=(3, 0, 0, 0))
    record_engagement(stack, measured.id, machine_id, today, numbers=(0, 0, 2, 0))
    answer(stack, measured.id, refusing_id, is_allowed=False)
    answer(stack, measured.id, agreeing_id, is_allowed=True)
    text = console.see(engagement_path(measured))
    assert heading(text) == "Engagement of The Daily Demo"
    rows = [tuple(row) for row in rows_of(text)]
    assert rows == [
        ("Last open or click", "Members", "Share"),
        ("In the last 30 days", "2", "16.6 %"),
        ("31 to 90 days ago", "1", "8.3 %"),
        ("91 to 180 days ago", "2", "16.6 %"),
        ("181 to 365 days ago", "2", "16.6 %"),
        ("More than 365 days ago", "1", "8.3 %"),
        ("Got mail, but opened and clicked none", "1", "8.3 %"),
        ("Nothing recorded", "3", "25 %"),
        ("Answer", "Members", "Share"),
        ("Yes", "1", "8.3 %"),
        ("No", "1", "8.3 %"),
        ("No answer", "10", "83.3 %"),
    ]
    links = re.findall(r'<th scope="row"><a href="([^"]+)"', text)
    counts = [int(row[1]) for row in rows if row[1].isdigit()]
    assert [count_found_members(console, link) for link in links] == counts


def test_page_of_a_list_in_mode_off_has_only_the_form(
    stack: Stack, console: OwnerAtConsole
) -> None:
    unmeasured = new_measured_list(stack, console.api, "off")
    text = console.see(engagement_path(unmeasured))
    assert "The list records no opens and clicks." in text
    assert "<table" not in text
    assert "TRACE_ID" not in text
    console.do(engagement_path(unmeasured), engagement="consent", engagement_wording="May we?")
    stored = data(console.api.get(f"/lists/{unmeasured.id}"))
    assert (stored["engagement"], stored["engagement_wording"]) == ("consent", "May we?")
    text = console.see(engagement_path(unmeasured))
    assert "of members who said yes" in text.partition("<form")[0]


def test_page_shows_the_link_to_the_question(
    console: OwnerAtConsole, measured: MeasuredList, stranger: httpx2.Client
) -> None:
    text = console.see(engagement_path(measured))
    [link] = re.findall(r'value="([^"]+)\?trace_id=TRACE_ID"', text)
    assert link.startswith("http")
    trace_id = trace_for(measured.stack, measured.id, measured.add_member())
    reply = stranger.get(link, params={"trace_id": trace_id})
    assert "how many of its e-mails I open" in reply.text


def test_invalid_question_changes_nothing(console: OwnerAtConsole, measured: MeasuredList) -> None:
    reply = console.send(
        engagement_path(measured), engagement="consent", engagement_wording="https://evil.example"
    )
    assert reply.status_code == 422
    assert read_error(reply.text, "engagement_wording")
    assert 'value="consent" checked' in reply.text
    assert read_mode(measured) == "all"


@pytest.mark.parametrize("mode", ["consent", "off"])
def test_mode_that_deletes_data_must_be_confirmed(
    console: OwnerAtConsole, measured: MeasuredList, mode: str
) -> None:
    add_clicking_member(measured, 3)
    add_clicking_member(measured, 4)
    reply = console.send(
        engagement_path(measured), engagement=mode, engagement_wording="May we count?"
    )
    text = read_page(reply)
    assert heading(text) == "Delete recorded engagement?"
    assert "would delete what the list recorded about 2 members. This can’t be undone." in text
    assert read_mode(measured) == "all"
    [(action, values)] = forms_of(reply)
    reply = console.visitor.client.post(action, data=values)
    assert reply.status_code == 303
    stored = data(console.api.get(f"/lists/{measured.id}"))
    assert (stored["engagement"], stored["engagement_wording"]) == (mode, "May we count?")


def test_mode_that_deletes_nothing_needs_no_confirmation(
    console: OwnerAtConsole, measured: MeasuredList
) -> None:
    agreeing_id = add_clicking_member(measured, 3)
    answer(measured.stack, measured.id, agreeing_id, is_allowed=True)
    assert "The settings were saved." in console.do(engagement_path(measured), engagement="consent")
    assert read_mode(measured) == "consent"
