"""A person reports a list that they did not ask for, by the link in its mail."""

import html
import re

import httpx
import pytest

from tests.commands import printed
from tests.contract.test_pages import TITLE, follow, heading, look
from tests.erasing import erase
from tests.stack import Stack, eventually
from tests.subscribers import Subscriber, new_list, subscribe, subscribe_pending
from tests.upkeep import run_upkeep

ASKS, THANKS = "Report this list", "Thank you for your report"


@pytest.fixture
def waiting(stack: Stack, client: httpx.Client) -> Subscriber:
    return subscribe_pending(stack, new_list(client, TITLE, confirm_required=True))


@pytest.fixture
def reader(stack: Stack, client: httpx.Client) -> Subscriber:
    return subscribe(stack, new_list(client, TITLE))


def opened(stranger: httpx.Client, reader: Subscriber) -> httpx.Response:
    return stranger.get("/report", params={"trace_id": reader.trace_id})


def reported(stranger: httpx.Client, reader: Subscriber) -> httpx.Response:
    reply = stranger.post("/report", params={"trace_id": reader.trace_id})
    assert reply.status_code == 303, reply.text
    return follow(stranger, reply)


def reports(stack: Stack, list_id: int) -> list[tuple[object, ...]]:
    return stack.query("SELECT user_id FROM list_reports WHERE list_id = %s", list_id)


def test_a_report_is_recorded_once_and_takes_the_person_off_the_list_for_good(
    stack: Stack, stranger: httpx.Client, waiting: Subscriber
) -> None:
    mailed = eventually(lambda: stack.mails(waiting.email), what="the mail")
    assert isinstance(mailed, list)
    [link] = [word for word in mailed[0]["text"].split() if "/report?" in word]
    assert html.escape(link) in mailed[0]["html"]
    path = httpx.URL(link).raw_path.decode()
    # Scanners open links, and change nothing.
    assert heading(stranger.get(path)) == ASKS
    assert stranger.head(path).status_code == 200
    assert reports(stack, waiting.list_id) == []
    for _ in range(2):
        done = stranger.post(path)
        assert heading(follow(stranger, done)) == THANKS
    assert reports(stack, waiting.list_id) == [(waiting.user_id,)]
    assert waiting.stands()[0] == "unsubscribed"
    # The link of the mail confirms nothing any more, and a stranger brings nobody back.
    [confirm] = re.findall(r"/confirm\?token=\S+", mailed[0]["text"])
    assert stranger.post(confirm).status_code == 409
    stranger.post(f"/subscriptions/{waiting.list_id}", json={"email": waiting.email})
    assert waiting.stands()[0] == "pending"


def test_a_member_who_never_asked_finds_the_report_on_the_page_of_leaving(
    stack: Stack, stranger: httpx.Client, reader: Subscriber
) -> None:
    [link] = re.findall(r'href="(report\?[^"]+)"', look(stranger, reader).text)
    assert heading(stranger.get(f"/{html.unescape(link)}")) == ASKS
    page = reported(stranger, reader)
    assert heading(page) == THANKS
    assert reader.email not in page.text
    assert reader.stands()[0] == "unsubscribed"


def test_only_the_mailed_link_reports(stranger: httpx.Client, reader: Subscriber) -> None:
    for query, status in (({}, 400), ({"trace_id": reader.trace_id[:-1] + "!"}, 403)):
        for reply in (
            stranger.get("/report", params=query),
            stranger.post("/report", params=query),
        ):
            assert reply.status_code == status
    assert reader.stands()[0] == "active"


def test_the_operator_sees_which_lists_are_reported(
    stack: Stack, client: httpx.Client, stranger: httpx.Client
) -> None:
    list_id = new_list(client, TITLE)
    readers = [subscribe(stack, list_id) for _ in range(3)]
    for each in readers:
        reported(stranger, each)
    old = "UPDATE list_reports SET created_at = now() - interval '8 days' WHERE user_id = %s"
    stack.query(old, readers[0].user_id)

    def row() -> dict[str, object]:
        [found] = [
            each
            for each in printed(stack, "lists", "reports", "--limit", "1000")
            if each["list_id"] == list_id
        ]
        return dict(found)

    [(owner_id, owner)] = stack.query(
        "SELECT users.id, email FROM users JOIN lists ON user_id = users.id WHERE lists.id = %s",
        list_id,
    )
    found = row()
    assert (found["title"], found["owner_id"], found["owner"]) == (TITLE, owner_id, owner)
    assert (found["reports"], found["reports_in_7_days"]) == (3, 2)
    # Erased people are not named, and their reports count.
    erase(stack.resources, readers[1].email)
    assert row()["reports"] == 3
    assert (None,) in reports(stack, list_id)


def test_a_report_is_kept_for_a_year(
    stack: Stack, stranger: httpx.Client, reader: Subscriber
) -> None:
    reported(stranger, reader)
    age = "UPDATE list_reports SET created_at = now() - %s::interval WHERE list_id = %s"
    for days, left in (("364 days", 1), ("366 days", 0)):
        stack.query(age, days, reader.list_id)
        run_upkeep(stack, "maintenance.purge")
        assert len(reports(stack, reader.list_id)) == left
