"""Tests of record names in the console's event lists, and of filters for events and reports."""

import html
import re

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.http.webhook_receiver import CREATED, new_endpoint
from tests.support.lists.segments import put_member
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import OwnerAtConsole, at_operators_console, rows_of
from tests.support.senders import posting
from tests.support.senders.own_senders import new_sender

EVENTS_PATH = "/console/developers/feed"
WEBHOOKS_PATH = "/console/developers/webhooks"
EVENTS_PER_PAGE = 20
UNREACHABLE_URL = "http://127.0.0.1:9"


def list_subjects(console: OwnerAtConsole, **query: str) -> list[str]:
    """Return the names of the records that the events on a page are about, newest first."""
    return [row[1] for row in rows_of(console.see(EVENTS_PATH, **query))[1:] if len(row) > 1]


def test_events_show_the_names_of_keys_instead_of_their_ids(console: OwnerAtConsole) -> None:
    data(console.api.post("/apikeys", json={"name": "Weekly <report>"}))
    eventually(
        lambda: list_subjects(console, type="key.created")[:1] == ["Weekly <report>"],
        what="the name",
    )


def test_account_history_names_the_records_that_were_created(console: OwnerAtConsole) -> None:
    data(console.api.post("/apikeys", json={"name": "Weekly report"}))
    new_endpoint(console.api, f"{UNREACHABLE_URL}/hooks", CREATED)
    new_sender(console.api, name="Mail server in Porto")
    text = html.unescape(console.see("/account/events").replace("<wbr>", ""))
    lines = re.findall(r"<li><p><span>([^<]+): <bdi>([^<]+)</bdi>", text)
    assert lines[:3] == [
        ("A sender was created", "Mail server in Porto"),
        ("A webhook was created", f"{UNREACHABLE_URL}/hooks"),
        ("An API key was created", "Weekly report"),
    ]


def test_older_events_are_on_further_pages_and_keep_the_filter(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    addresses = [f"reader{number}@example.com" for number in range(EVENTS_PER_PAGE + 2)]
    for address in addresses:
        put_member(console.api, list_id, address)
    eventually(
        lambda: list_subjects(console, type=CREATED)[:1] == addresses[-1:], what="the events"
    )
    newest = list_subjects(console, type=CREATED)
    assert newest == addresses[:1:-1]
    text = html.unescape(console.see(EVENTS_PATH, type=CREATED))
    [cursor] = re.findall(rf'href="\?type={CREATED}&cursor=([^"]+)"', text)
    assert list_subjects(console, type=CREATED, cursor=cursor) == [
        "reader1@example.com",
        addresses[0],
    ]
    assert "Next page" not in console.see(EVENTS_PATH, type=CREATED, cursor=cursor)
    console.see(EVENTS_PATH, 400, cursor="x")


def test_events_page_states_what_changed_and_merges_similar_events_about_members(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    addresses = [f"renamed{number}@example.com" for number in range(5)]
    for name in ("Ada", "Ada Lovelace"):
        for address in addresses:
            put_member(console.api, list_id, address, name=name)
    newest = addresses[-1]
    row = ["A member was changed: name", f"{newest} and 4 more"]

    def list_rows(**query: str) -> list[list[str]]:
        return [each[:2] for each in rows_of(console.see(EVENTS_PATH, **query))[2:]]

    eventually(lambda: list_rows()[:1] == [row], what="the events")
    assert list_rows()[1] == ["Someone signed up", f"{newest} and 4 more"]
    assert [each[1] for each in list_rows(type="subscription.changed")] == addresses[::-1]

    # One line covers members who changed in different ways, and names everything that changed. The
    # newest member changed twice, but the line is about all five members.
    for address in addresses[:-1]:
        put_member(console.api, list_id, address, name="Ada Byron", tags=["vip"])
    for name in ("Ada", "Ada Byron"):
        put_member(console.api, list_id, newest, name=name)
    row = ["A member was changed: name, tags", f"{newest} and 4 more"]
    eventually(lambda: list_rows()[:1] == [row], what="the merged events")


def test_events_page_counts_all_merged_events_about_one_member(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    for values in ({}, {"name": "A"}, {"tags": ["a"]}, {"name": "B"}, {"tags": ["b"]}):
        put_member(console.api, list_id, "ada@example.com", **values)
    row = ["A member was changed: tags, name, 4 times", "ada@example.com"]
    eventually(
        lambda: row in [each[:2] for each in rows_of(console.see(EVENTS_PATH))],
        what="the merged events",
    )


def test_events_page_shows_only_the_events_of_the_chosen_list(console: OwnerAtConsole) -> None:
    harbour_id = new_list(console.api, title="Harbour")["id"]
    garden_id = new_list(console.api, title="Garden")["id"]
    for list_id, address in ((harbour_id, "ada@example.com"), (garden_id, "bea@example.com")):
        put_member(console.api, list_id, address)
    eventually(
        lambda: list_subjects(console, list_id=str(garden_id)) == ["bea@example.com Garden"],
        what="the events",
    )
    text = console.see(EVENTS_PATH, list_id=str(harbour_id), type=CREATED)
    assert list_subjects(console, list_id=str(harbour_id)) == ["ada@example.com Harbour"]
    assert f"/events?type={CREATED}&amp;list_id={harbour_id}" in text
    # A list of another account isn't a choice, so the page shows the owner's own events.
    assert len(list_subjects(console, list_id="1", type=CREATED)) == 2


def test_sender_page_shows_only_the_selected_kind_of_report(
    console: OwnerAtConsole, stack: Stack
) -> None:
    sender = new_sender(console.api)
    unknown_delivery = {"delivery_id": "k7" * 26}
    posting.deliver(
        stack,
        console.api,
        sender,
        posting.report("delivered", **unknown_delivery),
        posting.bounce(**unknown_delivery),
    )
    path = f"/console/developers/senders/{sender['id']}"

    def list_reports(**query: str) -> list[list[str]]:
        return sorted(row[:3:2] for row in rows_of(console.see(path, **query))[1:])

    effect = "No member found The report fits no member of your lists."
    assert list_reports() == [["Bounced (hard)", effect], ["Delivered", effect]]
    assert list_reports(kind="bounced") == [["Bounced (hard)", effect]]
    assert "No reports of this kind." in console.see(path, kind="complained")


def test_webhook_page_shows_a_response_once_if_all_deliveries_failed_with_it(
    console: OwnerAtConsole,
) -> None:
    endpoint = new_endpoint(console.api, f"{UNREACHABLE_URL}/hooks", CREATED)
    path = f"{WEBHOOKS_PATH}/{endpoint['id']}"
    for _ in range(2):
        console.do(path)
    response = '<div class="wrong"><p>The connection failed'
    eventually(lambda: response in console.see(path), what="the response")
    assert "Last response" not in console.see(path)


def test_operators_see_the_owner_of_a_failing_webhook(
    console: OwnerAtConsole, stack: Stack
) -> None:
    url = f"{UNREACHABLE_URL}/failing"
    endpoint = new_endpoint(console.api, url, CREATED)
    # Make this webhook fail for longer than all others, so that the operators' table shows it
    # first.
    stack.query(
        "UPDATE webhook_endpoints SET failing_since = now() - interval '2 days' WHERE id = %s",
        endpoint["id"],
    )
    with at_operators_console(stack) as operator:
        rows = rows_of(operator.see("/console/operators"))
    assert [url, console.owner.email, "2 days ago"] in rows


def test_page_of_member_fields_marks_the_menu_entry_of_lists(console: OwnerAtConsole) -> None:
    menu = console.see("/console/fields").partition("</nav>")[0]
    [marked_entry] = re.findall(r'aria-current="true">.*?<span>([^<]+)</span></a>', menu)
    assert marked_entry == "Lists"
