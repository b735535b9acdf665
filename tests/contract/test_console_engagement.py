"""Tests of the console's page about a list's engagement, and of engagement on other pages."""

import html
import re
from datetime import UTC, date, datetime, timedelta

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.lists.engagement import answer, record_engagement
from tests.support.lists.measured_lists import MeasuredList, new_measured_list
from tests.support.lists.subscribers import new_address, require_member, trace_for
from tests.support.people.consoles import (
    OwnerAtConsole,
    forms_of,
    heading,
    read_error,
    read_page,
    rows_of,
)
from tests.support.senders.mailings import new_mailing


@pytest.fixture
def own_list(stack: Stack, console: OwnerAtConsole) -> MeasuredList:
    """A list in the mode `all`."""
    return new_measured_list(stack, console.api, title="The Daily Demo")


def engagement_path(own_list: MeasuredList) -> str:
    return f"/console/lists/{own_list.id}/engagement"


def add_clicking_member(own_list: MeasuredList, days_ago: int) -> int:
    """Add a member whose last click was on a day, and return the user id."""
    user_id = own_list.add_member()
    day = datetime.now(UTC).date() - timedelta(days=days_ago)
    record_engagement(
        *(own_list.stack, own_list.id, user_id, day),
        numbers=(1, 0, 0, 1),
        days=(day, None, None, day),
    )
    return user_id


def read_mode(own_list: MeasuredList) -> str:
    return str(data(own_list.client.get(f"/lists/{own_list.id}"))["engagement"])


def count_found_members(console: OwnerAtConsole, link: str) -> int:
    """Follow a link to the members page, and return the number of members that it shows."""
    text = console.see(html.unescape(link).removeprefix(console.visitor.stack.api_url))
    [count] = re.findall(r'id="all-found"[^>]*>(\d+)<', text)
    return int(count)


def test_page_counts_members_and_each_row_leads_to_them(
    stack: Stack, console: OwnerAtConsole, own_list: MeasuredList
) -> None:
    for days_ago in (0, 30, 31, 91, 180, 365, 181, 366):
        add_clicking_member(own_list, days_ago)
    delivered_id, machine_id, refusing_id, agreeing_id = (own_list.add_member() for _ in range(4))
    removed_id = own_list.add_member()
    data(console.api.delete(f"/subscriptions/{own_list.id}/members/{removed_id}"))
    today = datetime.now(UTC).date()
    record_engagement(stack, own_list.id, delivered_id, today, numbers=(3, 0, 0, 0))
    record_engagement(stack, own_list.id, machine_id, today, numbers=(0, 0, 2, 0))
    answer(stack, own_list.id, refusing_id, is_allowed=False)
    answer(stack, own_list.id, agreeing_id, is_allowed=True)
    text = console.see(engagement_path(own_list))
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


def test_page_of_a_list_in_mode_off_has_the_form_and_the_link(
    stack: Stack, console: OwnerAtConsole
) -> None:
    unmeasured = new_measured_list(stack, console.api, "off")
    text = console.see(engagement_path(unmeasured))
    assert "The list records no opens and clicks." in text
    assert "<table" not in text
    assert "TRACE_ID" in text
    console.do(engagement_path(unmeasured), engagement="consent", engagement_wording="May we?")
    stored = data(console.api.get(f"/lists/{unmeasured.id}"))
    assert (stored["engagement"], stored["engagement_wording"]) == ("consent", "May we?")
    text = console.see(engagement_path(unmeasured))
    assert "of members who said yes" in text.partition("<form")[0]


def test_page_shows_the_link_to_the_question(
    console: OwnerAtConsole, own_list: MeasuredList, stranger: httpx2.Client
) -> None:
    text = console.see(engagement_path(own_list))
    [link] = re.findall(r'value="([^"]+)\?trace_id=TRACE_ID"', text)
    assert link.startswith("http")
    trace_id = trace_for(own_list.stack, own_list.id, own_list.add_member())
    reply = stranger.get(link, params={"trace_id": trace_id})
    assert "how many of its e-mails I open" in reply.text


def test_invalid_question_changes_nothing(console: OwnerAtConsole, own_list: MeasuredList) -> None:
    reply = console.send(
        engagement_path(own_list), engagement="consent", engagement_wording="https://evil.example"
    )
    assert reply.status_code == 422
    assert read_error(reply.text, "engagement_wording")
    assert 'value="consent" checked' in reply.text
    assert read_mode(own_list) == "all"


@pytest.mark.parametrize("mode", ["consent", "off"])
def test_mode_that_deletes_data_must_be_confirmed(
    console: OwnerAtConsole, own_list: MeasuredList, mode: str
) -> None:
    add_clicking_member(own_list, 3)
    add_clicking_member(own_list, 4)
    reply = console.send(
        engagement_path(own_list), engagement=mode, engagement_wording="May we count?"
    )
    text = read_page(reply)
    assert heading(text) == "Delete recorded engagement?"
    assert "deletes the recorded opens and clicks of 2 members. This can’t be undone." in text
    assert read_mode(own_list) == "all"
    [(action, values)] = forms_of(reply)
    reply = console.visitor.client.post(action, data=values)
    assert reply.status_code == 303
    stored = data(console.api.get(f"/lists/{own_list.id}"))
    assert (stored["engagement"], stored["engagement_wording"]) == (mode, "May we count?")


def test_mode_that_deletes_nothing_needs_no_confirmation(
    console: OwnerAtConsole, own_list: MeasuredList
) -> None:
    agreeing_id = add_clicking_member(own_list, 3)
    answer(own_list.stack, own_list.id, agreeing_id, is_allowed=True)
    assert "The settings were saved." in console.do(engagement_path(own_list), engagement="consent")
    assert read_mode(own_list) == "consent"


SHOWN_FIGURES = {"measured": 120, "opened": 61, "machine_opened": 12, "clicked": 0}


def test_mailing_shows_shares_of_its_measured_members(
    stack: Stack, console: OwnerAtConsole, own_list: MeasuredList
) -> None:
    mailing_id = new_mailing(stack, own_list.id, rows=200, figures=SHOWN_FIGURES)
    mailings = f"/console/lists/{own_list.id}/mailings"
    text = console.see(f"{mailings}/{mailing_id}")
    assert "120 measured members" in text
    assert rows_of(text)[-3:] == [
        ["Opened", "61", "50.8 %"],
        ["Opened by machines", "12", "10 %"],
        ["Clicked", "0", "0 %"],
    ]
    [row] = rows_of(console.see(mailings))[1:]
    assert row[-1].endswith(
        "Of 120 measured members: 61 opened (50.8 %), 12 opened by machines (10 %), 0 clicked (0 %)"
    )


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({}, "the list recorded nobody’s opens and clicks"),
        ({"measured": 0}, "the list recorded nobody’s opens and clicks"),
        ({"measured": 19, "opened": 1}, "of fewer than 20 recipients"),
    ],
)
def test_mailing_without_figures_explains_why(
    *,
    stack: Stack,
    console: OwnerAtConsole,
    own_list: MeasuredList,
    figures: dict[str, int],
    reason: str,
) -> None:
    mailing_id = new_mailing(stack, own_list.id, rows=200, figures=figures)
    mailings = f"/console/lists/{own_list.id}/mailings"
    text = console.see(f"{mailings}/{mailing_id}")
    assert reason in text
    assert "Opened" not in text
    text = console.see(mailings)
    assert "with at least 20 measured members" in text
    assert "1 opened" not in text


def test_issue_adds_up_only_mailings_with_20_measured_members(
    stack: Stack, console: OwnerAtConsole, own_list: MeasuredList
) -> None:
    for rows, number, opened in ((100, 20, 4), (100, 30, 6), (100, 19, 5)):
        figures = {"delivered": rows, "measured": number, "opened": opened}
        mailing_id = new_mailing(stack, own_list.id, rows=rows, figures=figures, label="Letter")
    text = console.see(f"/console/lists/{own_list.id}/mailings/{mailing_id}")
    assert "50 measured members" in text
    assert ["Opened", "10", "20 %"] in rows_of(text)


def test_rosters_with_the_same_members_count_them_once(
    stack: Stack, console: OwnerAtConsole, own_list: MeasuredList
) -> None:
    """A program that sends for a long time exports a new roster from time to time."""
    for delivered, opened in ((60, 8), (40, 12)):
        figures = {"delivered": delivered, "measured": 40, "opened": opened}
        mailing_id = new_mailing(stack, own_list.id, rows=100, figures=figures, label="Letter")
    text = console.see(f"/console/lists/{own_list.id}/mailings/{mailing_id}")
    assert "40 measured members" in text
    assert ["Opened", "20", "50 %"] in rows_of(text)


def member_path(own_list: MeasuredList, user_id: int) -> str:
    return f"/console/lists/{own_list.id}/members/{user_id}"


def read_section(text: str) -> str:
    """Return the words of the section about engagement on a member's page."""
    [section] = re.findall(
        r'<section aria-labelledby="engagement">(.*?)</section>', text, re.DOTALL
    )
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", section)).split())


def test_member_page_shows_engagement_and_answer(
    console: OwnerAtConsole, own_list: MeasuredList, stranger: httpx2.Client
) -> None:
    user_id = own_list.add_member()
    assert read_section(console.see(member_path(own_list, user_id))).startswith(
        "Engagement The list records no opens and clicks of this member. They haven’t answered"
    )
    record_engagement(
        *(own_list.stack, own_list.id, user_id, date(2026, 5, 1)),
        numbers=(1200, 3, 2, 0),
        days=(date(2026, 5, 9), date(2026, 5, 8), date(2026, 5, 7), None),
    )
    own_list.answer(stranger, user_id, enabled=True)
    words = read_section(console.see(member_path(own_list, user_id)))
    assert words.startswith(
        "Engagement Measured since 1 May 2026 Delivered 1,200, last on 9 May 2026"
        " Opened 3, last on 8 May 2026 Opened by machines 2, last on 7 May 2026"
        " Clicked 0 Soft bounces in a row 0 They said yes."
    )


def read_timeline(text: str) -> list[str]:
    """Return the words of each entry, newest first."""
    _, _, timeline = text.partition('class="plain timeline"')
    entries = re.findall(r"<li>(.*?)</li>", timeline.partition("</ul>")[0], re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", entry).split()) for entry in entries]


def test_timeline_shows_a_yes_apart_from_the_consent_to_mail(
    stack: Stack, console: OwnerAtConsole, stranger: httpx2.Client
) -> None:
    asking = new_measured_list(stack, console.api, "consent")
    email = new_address()
    body = {"email": email, "engagement": True}
    assert data(stranger.post(f"/subscriptions/{asking.id}", json=body)) == 1
    user_id = require_member(console.api, asking.id, email)["user_id"]
    newest, oldest = read_timeline(console.see(member_path(asking, user_id)))
    assert newest.startswith("Allowed recording opens and clicks")
    assert "Opens and clicks Ticked the box of a sign-up form" in newest
    assert "how many of its e-mails I open" in newest
    assert "Consent Submitted a sign-up form" in oldest
    target = new_measured_list(stack, console.api, "consent")
    path = f"/subscriptions/{asking.id}/members/{user_id}/transfer"
    assert data(console.api.post(path, params={"dst_list_id": target.id})) == 1
    moved, *_, copied = read_timeline(console.see(member_path(target, user_id)))
    assert "Consent Moved from another of your lists" in moved
    assert copied.startswith("Opens and clicks Ticked the box of a sign-up form")
    target.answer(stranger, user_id, enabled=False)
    target.answer(stranger, user_id, enabled=True)
    newest, refused, *_ = read_timeline(console.see(member_path(target, user_id)))
    assert "Opens and clicks Said yes with a link in an e-mail" in newest
    assert refused.startswith("Refused recording opens and clicks")


def test_owner_records_the_no_of_a_member(console: OwnerAtConsole, own_list: MeasuredList) -> None:
    user_id = add_clicking_member(own_list, 1)
    text = console.see(member_path(own_list, user_id))
    assert "Only the person can say yes again." in read_section(text).replace("\n", " ")
    reply = console.visitor.get(member_path(own_list, user_id))
    [values] = [values for action, values in forms_of(reply) if action.endswith("/engagement")]
    action = f"{member_path(own_list, user_id)}/engagement"
    reply = console.visitor.client.post(action, data=values)
    assert reply.status_code == 303
    text = console.see(member_path(own_list, user_id))
    assert "Refused recording opens and clicks" in text
    assert "They said no." in read_section(text)
    assert "Record their no" not in text
    assert own_list.read_engagement(user_id) is None
