"""Tests of the console page that shows the mailings of a list, and of the links to this page."""

import html
import re
from datetime import timedelta

import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.imports.bulk import add
from tests.support.lists.subscribers import new_address, new_list, require_member
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    heading,
    read_error,
    rows_of,
)
from tests.support.senders.mailings import new_mailing
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import bounce, deliver, delivery_for

PAGE_SIZE = 50


@pytest.fixture
def mailed_list_id(console: OwnerAtConsole) -> int:
    return int(new_list(console.api, title="The Daily Demo")["id"])


def mailings_path(list_id: int) -> str:
    return f"/console/lists/{list_id}/mailings"


def read_names(text: str) -> list[str]:
    """Return the names of the mailings on a page, in the order of the page."""
    return [row[0] for row in rows_of(text)[1:]]


def test_mailings_page_shows_the_figures_newest_first(
    stack: Stack, console: OwnerAtConsole, mailed_list_id: int
) -> None:
    figures = {
        "delivered": 1100,
        "hard_bounced": 12,
        "soft_bounced": 6,
        "complained": 1,
        "unsubscribed": 4,
    }
    new_mailing(stack, mailed_list_id, rows=1200, figures=figures, label="September letter")
    unnamed_id = new_mailing(stack, mailed_list_id, rows=3)
    text = console.see(mailings_path(mailed_list_id))
    assert heading(text) == "Mailings of The Daily Demo"
    newest, oldest = rows_of(text)[1:]
    assert [newest.pop(1)[-10:], oldest.pop(1)[-10:]] == ["(just now)"] * 2
    assert newest == [f"Mailing {unnamed_id}", "3", "no reports"]
    assert oldest == [
        "September letter",
        "1,200",
        "1,100 delivered (91.6 %) 18 bounced (1.5 %) 1 complained (< 0.1 %)",
    ]
    assert 'aria-label="1,100 delivered, 18 bounced, 1 complained, 0 left of 1,200"' in text
    assert re.findall(r'<rect class="share-(\w+)" x="([\d.]+)%" width="([\d.]+)%"', text) == [
        ("delivered", "0", "91.67"),
        ("bounced", "91.67", "1.5"),
        ("complained", "93.17", "0.08"),
    ]


@pytest.mark.parametrize(
    ("rows", "figures", "bad_figures"),
    [
        (1000, {"hard_bounced": 50}, ["50 bounced (5 %)"]),
        (1000, {"hard_bounced": 49, "soft_bounced": 900}, []),
        (1000, {"complained": 3}, ["3 complained (0.3 %)"]),
        (1001, {"complained": 3}, []),
        (499, {"hard_bounced": 499, "complained": 499}, []),
    ],
)
def test_mailings_page_marks_only_figures_that_reach_a_limit_of_the_alarm(
    stack: Stack,
    console: OwnerAtConsole,
    mailed_list_id: int,
    *,
    rows: int,
    figures: dict[str, int],
    bad_figures: list[str],
) -> None:
    new_mailing(stack, mailed_list_id, rows=rows, figures=figures)
    text = console.see(mailings_path(mailed_list_id))
    marked_figures = [part.partition("</b>")[0] for part in text.split('<b class="bad">')[1:]]
    assert marked_figures == bad_figures
    assert ("mail providers may block" in text) is bool(bad_figures)


def test_share_is_rounded_down_and_never_shown_as_zero(
    stack: Stack, console: OwnerAtConsole, mailed_list_id: int
) -> None:
    figures = {"hard_bounced": 49_999, "complained": 1}
    new_mailing(stack, mailed_list_id, rows=1_000_000, figures=figures)
    [row] = rows_of(console.see(mailings_path(mailed_list_id)))[1:]
    assert row[3] == "49,999 bounced (4.9 %) 1 complained (< 0.1 %)"


def test_mailings_page_explains_the_empty_state(
    console: OwnerAtConsole, mailed_list_id: int
) -> None:
    text = console.see(mailings_path(mailed_list_id))
    assert "When your program downloads the recipients with this call" in text
    assert (
        f'class="button" href="{console.visitor.stack.api_url}/console/lists/{mailed_list_id}/send"'
        in text
    )
    assert f"/lists/{mailed_list_id}/exports" in text
    assert "<table" not in text


def test_mailings_page_escapes_html_in_a_label(
    stack: Stack, console: OwnerAtConsole, mailed_list_id: int
) -> None:
    label = "<img src=x>&amp; letter"
    new_mailing(stack, mailed_list_id, rows=1, label=label)
    text = console.see(mailings_path(mailed_list_id))
    assert "<img" not in text
    assert read_names(text) == [label]


def test_mailings_page_is_paged(stack: Stack, console: OwnerAtConsole, mailed_list_id: int) -> None:
    oldest_id = new_mailing(stack, mailed_list_id, rows=1)
    for _ in range(PAGE_SIZE):
        last_id = new_mailing(stack, mailed_list_id, rows=1)
    text = console.see(mailings_path(mailed_list_id))
    assert len(read_names(text)) == PAGE_SIZE
    assert read_names(text)[0] == f"Mailing {last_id}"
    cursor = text.split("cursor=")[1].split('"')[0]
    last_page = console.see(mailings_path(mailed_list_id), cursor=cursor)
    assert read_names(last_page) == [f"Mailing {oldest_id}"]


def test_mailings_of_another_owner_are_not_found(
    stack: Stack, console: OwnerAtConsole, mailed_list_id: int
) -> None:
    new_mailing(stack, mailed_list_id, rows=1, label="September letter")
    with at_console(stack) as other_owner:
        text = other_owner.see(mailings_path(mailed_list_id), 404)
    assert "September letter" not in text


@pytest.mark.parametrize("page", ["", "/export", "/mailings"])
def test_pages_of_a_list_link_to_its_mailings(
    console: OwnerAtConsole, mailed_list_id: int, page: str
) -> None:
    text = console.see(f"/console/lists/{mailed_list_id}{page}")
    assert f'<a href="{mailings_path(mailed_list_id)}"' in text.replace(
        console.visitor.stack.api_url, ""
    )


def test_alarm_in_the_events_links_to_its_mailing(
    stack: Stack, console: OwnerAtConsole, mailed_list_id: int
) -> None:
    email = new_address()
    data(add(console.api, mailed_list_id, email))
    mailing_id = new_mailing(stack, mailed_list_id, rows=500, figures={"hard_bounced": 24})
    user_id = require_member(console.api, mailed_list_id, email)["user_id"]
    delivery_id = delivery_for(stack, mailed_list_id, user_id, mailing_id)
    deliver(
        stack,
        console.api,
        new_sender(console.api),
        bounce("hard", "5.1.1", delivery_id=delivery_id),
    )
    link = f'{mailings_path(mailed_list_id)}#mailing-{mailing_id}"'
    eventually(
        lambda: link in console.see("/console/developers/feed"), what="the link to the mailing"
    )
    assert f'id="mailing-{mailing_id}"' in console.see(mailings_path(mailed_list_id))


def test_page_of_a_mailing_shows_the_outcomes_and_leads_to_the_people(
    stack: Stack, console: OwnerAtConsole, mailed_list_id: int
) -> None:
    email = new_address()
    data(add(console.api, mailed_list_id, email, new_address()))
    mailing_id = new_mailing(stack, mailed_list_id, rows=2, figures={"delivered": 1})
    user_id = require_member(console.api, mailed_list_id, email)["user_id"]
    delivery_id = delivery_for(stack, mailed_list_id, user_id, mailing_id)
    deliver(
        stack,
        console.api,
        new_sender(console.api),
        bounce("hard", "5.1.1", delivery_id=delivery_id),
    )
    path = f"{mailings_path(mailed_list_id)}/{mailing_id}"
    text = console.see(path)
    assert heading(text) == f"Mailing {mailing_id}"
    assert 'aria-label="1 delivered, 1 bounced, 0 complained, 0 left of 2"' in text
    links = [html.unescape(each) for each in re.findall(r'href="([^"]+\?filter=[^"]+)"', text)]
    bounced, to_tag = (
        next(each for each in links if page in each and "bounced_mailing" in each)
        for page in ("/members?", "/bulk-actions/new?")
    )
    found = console.see(bounced.removeprefix(console.visitor.stack.api_url))
    assert re.search(r'id="all-found"[^>]*>1<', found)
    assert email in found.replace("<wbr>", "")
    tagging = to_tag.removeprefix(console.visitor.stack.api_url)
    console.do(tagging, 0, tag_name="Bounced in September")
    eventually(
        lambda: (
            require_member(console.api, mailed_list_id, email)["tags"] == ["Bounced in September"]
        ),
        what="the tag",
    )


def read_outcomes(text: str) -> dict[str, list[str]]:
    """Map each outcome on the page of a mailing to its figures."""
    return {row[0]: row[1:-2] for row in rows_of(text)[1:]}


def test_page_of_a_mailing_compares_it_with_the_last_five_that_have_reports(
    stack: Stack, console: OwnerAtConsole, mailed_list_id: int
) -> None:
    for delivered in (0, 100, 100):
        new_mailing(stack, mailed_list_id, rows=100, figures={"delivered": delivered})
    for _ in range(3):
        new_mailing(stack, mailed_list_id, rows=1000)
    for delivered, bounced in ((90, 10), (80, 20)):
        figures = {"delivered": delivered, "hard_bounced": bounced}
        new_mailing(stack, mailed_list_id, rows=100, figures=figures)
    new_mailing(stack, mailed_list_id, rows=10, figures={"delivered": 10})
    mailing_id = new_mailing(
        stack, mailed_list_id, rows=200, figures={"delivered": 150, "soft_bounced": 30}
    )
    new_mailing(stack, mailed_list_id, rows=100, figures={"delivered": 1})
    text = console.see(f"{mailings_path(mailed_list_id)}/{mailing_id}")
    assert rows_of(text)[0][1:4] == ["People", "Share", "Average of the last 5"]
    assert read_outcomes(text) == {
        "Delivered": ["150", "75 %", "94 %"],
        "Bounced": ["30", "15 %", "6 %"],
        "Complained": ["0", "0 %", "0 %"],
        "Left": ["0", "0 %", "0 %"],
    }


def test_page_of_a_mailing_has_no_comparison_with_fewer_than_two_earlier_mailings(
    stack: Stack, console: OwnerAtConsole, mailed_list_id: int
) -> None:
    figures = {"delivered": 90}
    new_mailing(stack, mailed_list_id, rows=100, figures=figures)
    mailing_id = new_mailing(stack, mailed_list_id, rows=100, figures=figures)
    text = console.see(f"{mailings_path(mailed_list_id)}/{mailing_id}")
    assert "There is no comparison yet" in text
    assert read_outcomes(text)["Delivered"] == ["90", "90 %"]
    mailing_id = new_mailing(stack, mailed_list_id, rows=100)
    text = console.see(f"{mailings_path(mailed_list_id)}/{mailing_id}")
    assert read_outcomes(text)["Delivered"] == ["0", "0 %", "90 %"]


def test_rosters_of_one_issue_count_as_one_mailing(
    stack: Stack, console: OwnerAtConsole, mailed_list_id: int
) -> None:
    """A program that sends for a long time exports a new roster from time to time."""
    for age, label in ((timedelta(days=2), "One"), (timedelta(days=1), "Two")):
        for delivered in (30, 60):
            new_mailing(
                *(stack, mailed_list_id),
                rows=100,
                age=age,
                figures={"delivered": delivered},
                label=label,
            )
    new_mailing(stack, mailed_list_id, rows=100, figures={"delivered": 1}, label="Other")
    emails = [new_address() for _ in range(2)]
    data(add(console.api, mailed_list_id, *emails))
    ids = []
    for email in emails:
        mailing_id = new_mailing(
            stack, mailed_list_id, rows=100, figures={"delivered": 40}, label="Three"
        )
        ids.append(mailing_id)
        user_id = require_member(console.api, mailed_list_id, email)["user_id"]
        delivery_id = delivery_for(stack, mailed_list_id, user_id, mailing_id)
        deliver(stack, console.api, new_sender(console.api), bounce(delivery_id=delivery_id))
    for mailing_id in ids:
        text = console.see(f"{mailings_path(mailed_list_id)}/{mailing_id}")
        words = " ".join(text.split())
        assert "counted together with 1 other mailing of this name on the same day" in words
        outcomes = read_outcomes(text)
        assert outcomes["Delivered"] == ["80", "80 %", "60.3 %"]
        assert outcomes["Bounced"][:2] == ["2", "2 %"]
        [bounced] = re.findall(r'href="([^"]+/members\?filter=[^"]+bounced_mailing[^"]+)"', text)
        people = console.see(html.unescape(bounced).removeprefix(console.visitor.stack.api_url))
        assert all(email in people.replace("<wbr>", "") for email in emails)


def test_owner_names_a_mailing(stack: Stack, console: OwnerAtConsole, mailed_list_id: int) -> None:
    mailing_id = new_mailing(stack, mailed_list_id, rows=2)
    path = f"{mailings_path(mailed_list_id)}/{mailing_id}"
    assert heading(console.do(path, label="Tea & cake")) == "Tea & cake"
    assert read_names(console.see(mailings_path(mailed_list_id))) == ["Tea & cake"]
    reply = console.send(path, label="x" * 201)
    assert reply.status_code == 422
    assert read_error(reply.text, "label")
    assert heading(console.do(path, label=" ")) == f"Mailing {mailing_id}"
