"""Tests of the console pages on which an owner finds, adds, changes, moves or removes members."""

import html
import json
import re
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.imports.bulk import build_address_file, build_csv, import_members_file
from tests.support.lists.bounces import bounce_hard, build_mailing
from tests.support.lists.segments import new_field, new_segment, put_member, run_bulk_action
from tests.support.lists.subscribers import Reader, fetch_members, new_list, require_member
from tests.support.people.consoles import (
    OwnerAtConsole,
    forms_of,
    heading,
    read_error,
    read_page,
    rows_of,
)


@pytest.fixture
def id_of_list_with_members(console: OwnerAtConsole) -> int:
    """The id of a mailing list with three members: Ada, Bob and Cleo."""
    mailing_list = new_list(console.api)
    rows = [
        ("ada@example.com", "Ada", "gold", "vip, rome"),
        ("bob@example.com", "Bob", "free", "vip"),
        ("cleo@example.org", "Cleo & Co", "free", ""),
    ]
    import_members_file(
        console.api, mailing_list["id"], build_csv(["Email", "Name", "Type", "Tags"], *rows)
    )
    return int(mailing_list["id"])


# The indexes of the forms on the page of a member with the button "Turn mail off" or "on".
DETAILS_FORM = 1
MOVE_FORM = 2


def members_path(list_id: int, suffix: str = "") -> str:
    return f"/console/lists/{list_id}/members{suffix}"


def find_emails(console: OwnerAtConsole, list_id: int, **query: str) -> list[str]:
    return [row[0] for row in rows_of(console.see(members_path(list_id), **query))[1:]]


def get_member(console: OwnerAtConsole, list_id: int, email: str) -> dict[str, Any]:
    return dict(data(console.api.get(f"/lists/{list_id}/members/{email}")))


def member_path(console: OwnerAtConsole, list_id: int, email: str) -> str:
    return members_path(list_id, f"/{get_member(console, list_id, email)['user_id']}")


# Each search, and the addresses that it must find.
SEARCHES: list[tuple[dict[str, str], list[str]]] = [
    ({}, ["cleo@example.org", "bob@example.com", "ada@example.com"]),
    ({"q": "cleo &", "since": "2020-01-01"}, ["cleo@example.org"]),
    ({"type": "gold", "tag": "VIP"}, ["ada@example.com"]),
    ({"status": "removed"}, []),
    (
        {"match.0": "all", "field.0.0": "type", "kind.0.0": "word", "operator.0.0": "is"}
        | {"value.0.0": "free", "tag": "vip"},
        ["bob@example.com"],
    ),
]


def test_console_finds_members_by_search_and_filters(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    for query, expected in SEARCHES:
        reply = console.visitor.get(members_path(id_of_list_with_members), **query)
        assert [row[0] for row in rows_of(read_page(reply))[1:]] == expected, query
        assert ("No members match" in reply.text) == (expected == [])
        # After a search, the form still shows the searched values.
        [(_, form), *_] = forms_of(reply)
        assert {*query.values()} <= {*form.values()}


def test_console_finds_members_of_a_segment_and_saves_a_search_as_segment(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    segment = new_segment(console.api, id_of_list_with_members)
    assert find_emails(console, id_of_list_with_members, segment=str(segment["id"]), q="ada") == [
        "ada@example.com"
    ]
    path = f"/console/lists/{id_of_list_with_members}/segments/new?tag=vip&type=gold"
    text = console.do(path, name="Gold VIPs")
    assert "The segment “Gold VIPs” was created." in text
    assert [row[0] for row in rows_of(text)[1:]] == ["ada@example.com"]
    # The page of the new segment doesn't open the filter form, and offers no button to save the
    # segment again.
    assert "<details open>" not in text
    assert "Save as segment" not in text
    assert "Edit segment" in text
    console.see(members_path(id_of_list_with_members), 404, segment="999999999999")
    console.see(members_path(id_of_list_with_members), 404, segment="x")


def test_console_members_page_explains_the_empty_state(console: OwnerAtConsole) -> None:
    path = members_path(new_list(console.api)["id"])
    for query in ({}, {"columns": "city"}):
        assert "No members yet" in console.see(path, **query)
    assert "No members match" in console.see(path, status="pending")


@pytest.mark.parametrize("malformed_filter", ["{", '{"field": "nothing", "is": 1}'])
def test_console_shows_an_error_next_to_a_malformed_member_filter(
    console: OwnerAtConsole, id_of_list_with_members: int, malformed_filter: str
) -> None:
    page = console.see(members_path(id_of_list_with_members), 400, filter=malformed_filter)
    assert read_error(page, "filter")
    assert "ada@example.com" not in page


def test_console_shows_up_to_three_custom_fields_as_member_columns(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    for key in ("a", "b", "c", "d"):
        new_field(console.api, key, "boolean")
    put_member(
        console.api, id_of_list_with_members, "ada@example.com", fields={"a": True, "c": False}
    )
    for query in ("", "&q=ada", "&q=ada&type=gold"):
        text = console.see(
            f"{members_path(id_of_list_with_members)}?column=a&column=b&column=c&column=d{query}"
        )
        head, *rows = rows_of(text)
        assert head[4:-1] == ["A", "B", "C"]
        assert next(row for row in rows if row[0] == "ada@example.com")[4:-1] == ["Yes", "", "No"]
    # Links on the page keep the chosen columns.
    assert "columns=a%2Cb%2Cc%2Cd" in console.see(
        f"{members_path(id_of_list_with_members)}?columns=a,b,c,d&q=ada"
    )


def test_console_member_pages_keep_the_search_and_show_every_member_exactly_once(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    addresses = [f"reader{number}@example.net" for number in range(60)]
    import_members_file(console.api, id_of_list_with_members, build_address_file(*addresses))
    for query in ({}, {"q": "example.net"}):
        emails: list[str] = []
        url = members_path(id_of_list_with_members)
        text = console.see(url, **query)
        while True:
            emails += [row[0] for row in rows_of(text)[1:]]
            next_link = re.search(r'rel="next" href="([^"]+)"', text)
            if next_link is None:
                break
            text = console.see(url + next_link[1].replace("&amp;", "&"))
        assert len(emails) == len(set(emails)) == (63 if not query else 60)


def test_console_adds_a_member_and_shows_the_member_page(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    text = console.do(
        members_path(id_of_list_with_members, "/new"),
        email=" New@Example.com ",
        name="Nia",
        type="silver",
    )
    assert heading(text) == "Nia"
    assert '<span data-copy="address">new<wbr>@example.com</span>' in text
    assert "new@example.com is on the list." in text
    assert "Added by you" in text
    new_member = get_member(console, id_of_list_with_members, "new@example.com")
    assert (new_member["name"], new_member["type"], new_member["source"]) == (
        "Nia",
        "silver",
        "owner",
    )


def test_console_rejects_a_new_member_with_invalid_or_opted_out_address(
    console: OwnerAtConsole, id_of_list_with_members: int, make_reader: Callable[[], Reader]
) -> None:
    path = members_path(id_of_list_with_members, "/new")
    assert read_error(read_page(console.send(path, email="no address"), 422), "email")
    reader = make_reader()
    reader.joins(id_of_list_with_members).leaves(id_of_list_with_members)
    text = read_page(console.send(path, email=reader.email), 409)
    assert "opted out" in read_error(text, "email")


def test_console_changes_name_and_tier_and_tags_and_fields_of_a_member(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    for key, kind, options in (
        ("city", "text", {}),
        ("visits", "number", {}),
        ("born", "date", {}),
        ("vegan", "boolean", {}),
        ("size", "choice", {"choices": ["S", "M"]}),
    ):
        new_field(console.api, key, kind, **options)
    path = member_path(console, id_of_list_with_members, "ada@example.com")
    form_values = {
        "name": "Ada L.",
        "type": "silver",
        "paid_expiry": "2030-02-01",
        "tags": "vip,  Patron ,",
        "fields.city": "Rome",
        "fields.visits": "3",
        "fields.born": "1990-02-28",
        "fields.vegan": "true",
        "fields.size": "M",
    }
    assert "The changes were saved." in console.do(path, DETAILS_FORM, **form_values)
    record = get_member(console, id_of_list_with_members, "ada@example.com")
    assert (record["name"], record["type"], record["tags"]) == (
        "Ada L.",
        "silver",
        ["Patron", "vip"],
    )
    assert record["paid_expiry"] == "2030-02-01T00:00:00.000000Z"
    assert record["fields"] == {
        "city": "Rome",
        "visits": 3,
        "born": "1990-02-28",
        "vegan": True,
        "size": "M",
    }
    # Saving an unchanged form changes nothing. Saving an empty field deletes the stored value.
    assert "There were no changes to save." in console.do(path, DETAILS_FORM)
    console.do(path, DETAILS_FORM, **{"fields.city": "", "tags": "", "paid_expiry": ""})
    record = get_member(console, id_of_list_with_members, "ada@example.com")
    assert (record["tags"], record["paid_expiry"]) == ([], None)
    assert "city" not in record["fields"]
    text = console.see(path)
    assert "Edited: name, tier, end date of the tier, tags, City" in text


def test_console_shows_member_errors_next_to_their_fields(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    new_field(console.api, "visits", "number")
    path = member_path(console, id_of_list_with_members, "ada@example.com")
    member_before = get_member(console, id_of_list_with_members, "ada@example.com")
    for field_name, invalid_value in (
        ("fields.visits", "many"),
        ("tags", "x" * 41),
        ("type", "platinum"),
        ("name", "x" * 201),
        ("paid_expiry", "soon"),
    ):
        reply = console.send(path, DETAILS_FORM, **{field_name: invalid_value})
        assert read_error(read_page(reply, 422), field_name)
    assert get_member(console, id_of_list_with_members, "ada@example.com") == member_before


def test_console_switches_mail_of_a_member_but_never_overrides_an_opt_out(
    console: OwnerAtConsole, id_of_list_with_members: int, make_reader: Callable[[], Reader]
) -> None:
    path = member_path(console, id_of_list_with_members, "ada@example.com")
    assert "Mail was turned off." in console.do(path, enabled="no")
    assert get_member(console, id_of_list_with_members, "ada@example.com")["email_enabled"] is False
    assert "Mail was turned on." in console.do(path, enabled="yes")
    reader = make_reader()
    reader.joins(id_of_list_with_members).wants_mail(id_of_list_with_members, False)
    path = member_path(console, id_of_list_with_members, reader.email)
    page = console.see(path)
    assert "off by the member" in page
    assert "Turn mail on" not in page
    # An owner who opened the page before the member opted out still sees the button "Turn mail on".
    assert "opted out" in read_page(turn_mail_on(console, path), 409)
    assert get_member(console, id_of_list_with_members, reader.email)["email_enabled"] is False


def turn_mail_on(console: OwnerAtConsole, path: str) -> httpx2.Response:
    """Send the same request as the button "Turn mail on" on a member's page."""
    _, values = forms_of(console.visitor.get(path))[0]
    form = {"csrf_token": values["csrf_token"], "enabled": "yes"}
    return console.visitor.client.post(f"{path}/email", data=form)


def test_console_shows_why_mail_is_off_and_turns_it_on_once_after_a_bounce(
    stack: Stack, console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    list_id = id_of_list_with_members
    user_id = get_member(console, list_id, "ada@example.com")["user_id"]
    path = members_path(list_id, f"/{user_id}")
    bounce_hard(stack, build_mailing(list_id, user_id))
    page = console.see(path)
    assert "off after a hard bounce (5.1.1)" in page
    assert "Mail turned off after a hard bounce" in page
    assert "reported by your mail service" in page
    assert "Mail was turned on." in console.do(path, enabled="yes")
    bounce_hard(stack, build_mailing(list_id, user_id, mailing_id=2), status=None)
    page = console.see(path)
    assert "off after a hard bounce" in page
    assert "5.1.1" not in page
    assert "Turn mail on" not in page
    assert "only once in 30 days" in read_page(turn_mail_on(console, path), 409)


def test_console_moves_a_member_to_another_list(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    target_list = new_list(console.api, title="The target")
    path = member_path(console, id_of_list_with_members, "bob@example.com")
    action, values = forms_of(console.visitor.get(path))[MOVE_FORM]
    assert action.endswith("/move")
    # No list is preselected, so that a single click can't move a member.
    assert values["list"] == ""
    reply = console.visitor.client.post(action, data=values)
    assert "Choose the list to move this member to." in read_page(reply, 422)
    text = console.do(path, MOVE_FORM, list=str(target_list["id"]))
    assert "The member was moved to “The target”." in text
    assert require_member(console.api, target_list["id"], "bob@example.com")["tags"] == ["vip"]
    assert "Moved to another list" in console.see(path)


def test_console_offers_no_actions_for_a_member_who_unsubscribed(
    console: OwnerAtConsole, id_of_list_with_members: int, make_reader: Callable[[], Reader]
) -> None:
    new_list(console.api, title="The target")
    reader = make_reader()
    reader.joins(id_of_list_with_members).leaves(id_of_list_with_members)
    page = console.see(member_path(console, id_of_list_with_members, reader.email))
    assert "Unsubscribed, and gets no mail from this list. Only they can subscribe again." in page
    for action_text in ("Gets mail", "Turn mail", "Move to another list", "Remove from list"):
        assert action_text not in page
    # The confirmation page doesn't say that the owner can add the person again, because the owner
    # can't.
    page = console.see(f"{member_path(console, id_of_list_with_members, reader.email)}/remove")
    assert "Only they can subscribe again." in page
    assert "Remove member" not in page


def test_console_removes_a_member_after_confirmation(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    path = member_path(console, id_of_list_with_members, "ada@example.com")
    assert heading(console.see(f"{path}/remove")) == "Remove ada@example.com?"
    assert get_member(console, id_of_list_with_members, "ada@example.com")["status"] == "active"
    text = console.do(f"{path}/remove")
    assert "The member was removed from the list." in text
    assert find_emails(console, id_of_list_with_members, status="removed") == ["ada@example.com"]


def test_console_shows_history_and_consent_of_a_member_in_words(
    console: OwnerAtConsole, make_reader: Callable[[], Reader]
) -> None:
    mailing_list = new_list(console.api, consent_wording="I want <it>.")
    reader = make_reader()
    reader.joins(mailing_list["id"])
    text = console.see(members_path(mailing_list["id"], f"/{reader.user_id}"))
    assert "Subscribed while logged in" in text
    assert "I want &lt;it&gt;." in text
    assert "by the member, IP address 127.0.0.1" in text
    reader.leaves(mailing_list["id"])
    assert "Unsubscribed" in console.see(members_path(mailing_list["id"], f"/{reader.user_id}"))


def test_console_escapes_html_in_member_names(console: OwnerAtConsole) -> None:
    mailing_list = new_list(console.api)
    name = '"><script>alert(1)</script>'
    text = console.do(members_path(mailing_list["id"], "/new"), email="x@example.com", name=name)
    assert "<script>alert" not in text
    assert name in html.unescape(text)
    assert name in html.unescape(console.see(members_path(mailing_list["id"])))


def test_console_applies_a_bulk_action_to_the_ticked_members(console: OwnerAtConsole) -> None:
    list_id = new_list(console.api)["id"]
    emails = [f"{name}@example.com" for name in ("ada", "ben", "eve")]
    for email in emails:
        put_member(console.api, list_id, email)
    path = f"/console/lists/{list_id}"
    page = console.see(f"{path}/members")
    assert [f'name="chosen" value="{email}"' in page for email in emails] == [True] * 3
    chosen = httpx2.QueryParams([("chosen", email) for email in emails[:2]])
    page = console.see(f"{path}/bulk-actions/new?{chosen}")
    assert "Apply to 2 members" in page
    console.send(f"{path}/bulk-actions/new?{chosen}", action="tag", tag_name="picked")

    def has_tagged_two_members() -> bool:
        listed_members = fetch_members(console.api, list_id)
        return {each["email"] for each in listed_members if each["tags"]} == set(emails[:2])

    eventually(has_tagged_two_members, what="the tag on two members")


def test_console_page_of_an_undone_bulk_action_says_what_the_undo_did(
    console: OwnerAtConsole,
) -> None:
    list_id = new_list(console.api)["id"]
    for name in ("ada", "ben", "eve"):
        put_member(console.api, list_id, f"{name}@example.com")
    everyone = {"field": "status", "is": "active"}
    bulk_id = run_bulk_action(console.api, list_id, "tag", value="picked", filter=everyone)[
        "bulk_id"
    ]
    data(console.api.patch(f"/lists/{list_id}/members/eve@example.com", json={"tags": []}))
    data(console.api.delete(f"/bulk/{bulk_id}"))
    path = f"/console/lists/{list_id}/bulk-actions/{bulk_id}"
    eventually(lambda: "Undone: 2 members restored" in console.see(path), what="the undo")
    text = console.see(path)
    assert "1 member wasn’t restored because of later changes." in text
    assert "<h2>Before the undo</h2>\n<p>3 of 3 members changed</p>" in text
    assert "See the list’s members" in text


def test_console_sorts_members_by_the_links_in_the_heads_of_the_columns(
    stack: Stack, console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    path = members_path(id_of_list_with_members)
    for address, name, day in (
        ("bob@example.com", None, "2024-01-01"),
        ("ada@example.com", "Ádá", "2025-01-01"),
    ):
        put_member(console.api, id_of_list_with_members, address, name=name)
        stack.query(
            "UPDATE subscriptions SET joined_at = %s WHERE list_id = %s AND email = %s",
            *(day, id_of_list_with_members, address),
        )
    text = console.see(path)
    assert "aria-sort" not in text
    for label, order in (("Address", "abc"), ("Name", "acb"), ("Joined", "cab")):
        for expected in (order, order[::-1]):
            text = follow_head(console, text, label)
            assert "".join(row[0][0] for row in rows_of(text)[1:]) == expected
            is_descending = (expected == order) == (label == "Joined")
            direction = "descending" if is_descending else "ascending"
            assert re.findall(r'aria-sort="(\w+)"', text) == [direction]
    # The search keeps the order, and the order keeps the search.
    text = console.see(path, q="example.com", sort="-email")
    assert [row[0] for row in rows_of(text)[1:]] == ["bob@example.com", "ada@example.com"]
    assert '<input type="hidden" name="sort" value="-email">' in text
    text = follow_head(console, text, "Address")
    assert [row[0] for row in rows_of(text)[1:]] == ["ada@example.com", "bob@example.com"]


def follow_head(console: OwnerAtConsole, text: str, label: str) -> str:
    """Follow the link in the head of a column of the members table."""
    [url] = re.findall(rf'<a href="([^"]+)">{label}</a>', text)
    return read_page(console.visitor.client.get(html.unescape(url)))


def test_console_sorted_pages_show_every_member_once_and_reject_cursors_of_other_orders(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    addresses = [f"reader{number}@example.net" for number in range(60)]
    import_members_file(console.api, id_of_list_with_members, build_address_file(*addresses))
    path = members_path(id_of_list_with_members)
    emails: list[str] = []
    text = console.see(path, sort="-email")
    assert '<span id="all-found" class="meta">63</span>' in text
    while True:
        emails += [row[0] for row in rows_of(text)[1:]]
        next_link = re.search(r'rel="next" href="[^"]+cursor=([^"]+)"', text)
        if next_link is None:
            break
        cursor = next_link[1]
        text = console.see(path, sort="-email", cursor=cursor)
    assert emails == sorted(emails, reverse=True)
    assert len(emails) == len(set(emails)) == 63
    for query in ({"sort": "email"}, {"sort": "-joined"}, {}):
        page = console.see(path, 400, cursor=cursor, **query)
        assert "cursor must be the next_cursor of an earlier page." in page


def test_console_names_the_orders_that_members_can_have(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    page = console.see(members_path(id_of_list_with_members), 400, sort="city")
    assert "must be one of joined, email, name, with a minus sign for a descending order" in page


def test_console_shows_only_unusual_states_and_tiers_of_members(
    stack: Stack, console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    list_id = id_of_list_with_members
    bob = get_member(console, list_id, "bob@example.com")
    bounce_hard(stack, build_mailing(list_id, bob["user_id"]))
    cleo_path = member_path(console, list_id, "cleo@example.org")
    console.do(cleo_path, enabled="no")
    put_member(console.api, list_id, "dan@example.org")
    rows = {row[0]: row[2] for row in rows_of(console.see(members_path(list_id)))[1:]}
    assert rows == {
        "ada@example.com": "paid, gold",
        "bob@example.com": "bounced",
        "cleo@example.org": "mail off",
        "dan@example.org": "",
    }
    console.do(f"{cleo_path}/remove")
    [_, row] = rows_of(console.see(members_path(list_id), status="removed"))
    assert (row[0], row[2]) == ("cleo@example.org", "removed")


def test_console_adds_a_column_for_each_attribute_in_the_filter(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    list_id = id_of_list_with_members
    new_field(console.api, "city")
    put_member(console.api, list_id, "ada@example.com", fields={"city": "Rome"})
    for condition, label, value in (
        ({"field": "fields.city", "is": "rome"}, "City", "Rome"),
        ({"field": "source", "is": "import"}, "Joined by", "Imported"),
        ({"not": {"field": "utm_campaign", "exists": True}}, "Campaign", ""),
    ):
        member_filter = json.dumps({"all": [condition, {"field": "tag", "is": "vip"}]})
        text = console.see(members_path(list_id), filter=member_filter, q="ada")
        head, row = rows_of(text)
        assert (head[4:-1], row[4:-1]) == ([label], [value])
    console.do(f"{member_path(console, list_id, 'ada@example.com')}/remove")
    member_filter = json.dumps({"field": "left_reason", "is": "removed"})
    head, row = rows_of(console.see(members_path(list_id), filter=member_filter))
    assert (head[4:-1], row[4:-1]) == (["Left because"], ["removed"])


def test_console_names_the_number_of_members_of_a_bulk_action_and_preselects_the_action(
    console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    page = console.see(members_path(id_of_list_with_members))
    assert ">Bulk action on all 3</button>" in page
    actions = re.findall(r'<button [^>]*name="action" value="(\w+)"', page)
    assert actions == ["tag", "email_off", "remove"]
    path = f"/console/lists/{id_of_list_with_members}/bulk-actions/new"
    for action in actions:
        page = console.see(path, action=action, chosen="ada@example.com")
        assert f'name="action" value="{action}" checked' in page
        assert "Apply to 1 member" in page
    assert 'value="tag" checked' in console.see(path, action="explode")


def test_console_timeline_of_a_member_shows_each_change_and_consent_once(
    console: OwnerAtConsole, make_reader: Callable[[], Reader]
) -> None:
    mailing_list = new_list(console.api, consent_wording="I want it.")
    reader = make_reader()
    for _ in range(8):
        reader.joins(mailing_list["id"]).leaves(mailing_list["id"])
    for number in range(10):
        body = {"name": f"Name {number}"}
        data(console.api.patch(f"/lists/{mailing_list['id']}/members/{reader.user_id}", json=body))
    path = members_path(mailing_list["id"], f"/{reader.user_id}")
    pages = [console.see(path)]
    while next_link := re.search(r'rel="next" href="[^"]*cursor=([^"]+)"', pages[-1]):
        pages.append(console.see(path, cursor=next_link[1]))
    entries = [entry for page in pages for entry in list_entries(page)]
    history = data(console.api.get(f"/lists/{mailing_list['id']}/members/{reader.user_id}/history"))
    assert len(pages) == 2
    assert len(entries) == len(history["items"]) == 26
    # A consent is part of the change with which it was stored.
    consents = [entry for entry in entries if "Consent Subscribed while logged in" in entry]
    assert len(consents) == 8
    assert all(entry.startswith("Subscribed") and "I want it." in entry for entry in consents)
    for cursor in ("1", "x_-", "_x", "1_2_3"):
        console.see(path, 400, cursor=cursor)


def list_entries(page: str) -> list[str]:
    """Return the texts of the entries in the timeline of a member."""
    timeline = page.partition('<ul class="plain timeline">')[2].partition("</ul>")[0]
    items = re.findall(r"<li[^>]*>(.*?)</li>", timeline, re.DOTALL)
    return [html.unescape(" ".join(re.sub(r"<[^>]+>", " ", item).split())) for item in items]


def test_console_shows_a_member_s_state_and_its_button_before_everything_else(
    stack: Stack, console: OwnerAtConsole, id_of_list_with_members: int
) -> None:
    list_id = id_of_list_with_members
    user_id = get_member(console, list_id, "ada@example.com")["user_id"]
    path = members_path(list_id, f"/{user_id}")
    bounce_hard(stack, build_mailing(list_id, user_id))
    page = console.see(path)
    parts = (
        "because the address doesn’t exist.",
        "Turn mail on",
        'aria-labelledby="history"',
        'name="name"',
    )
    assert sorted(parts, key=page.index) == [*parts]
