"""The console's pages of lists: what an owner has, makes, changes and archives."""

import secrets
from collections.abc import Iterator

import pytest

from models import Plan
from tests.consoles import (
    OwnerAtConsole,
    at_console,
    calls_of,
    forms_of,
    heading,
    rows_of,
    shown,
    wrong_beside,
)
from tests.contract.bulk import imported, of_addresses
from tests.contract.replies import data
from tests.contract.subscribers import new_list
from tests.stack import Stack

NEW = "/console/lists/new"


@pytest.fixture
def owner(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as found:
        yield found


def slug() -> str:
    return f"slug-{secrets.token_hex(6)}"


def lists_of(owner: OwnerAtConsole) -> list[str]:
    return [each["title"] for each in data(owner.api.get("/lists"))["items"]]


def test_an_owner_of_nothing_is_told_what_to_do_next(owner: OwnerAtConsole) -> None:
    text = owner.see("/console")
    assert "Make your first list" in text
    assert f'href="{owner.visitor.stack.api_url}{NEW}"' in text
    assert "You have no list yet" in owner.see("/console/lists")


def test_the_overview_leads_on_from_list_to_members_to_nothing_more(
    owner: OwnerAtConsole,
) -> None:
    list_id = new_list(owner.api, title="The <i>Daily</i> Demo")["id"]
    text = owner.see("/console")
    assert "has no members yet" in text
    assert "<i>Daily" not in text
    imported(owner.api, list_id, of_addresses("a.reader@example.com"))
    text = owner.see("/console")
    assert "What to do next" not in text
    assert ["The <i>Daily</i> Demo", "1", "just now"] in rows_of(text)


def test_a_person_makes_a_list(owner: OwnerAtConsole) -> None:
    name = slug()
    text = owner.do(NEW, title="The Daily Demo", slug=name, tagline="")
    assert heading(text) == "The Daily Demo"
    assert "The list “The Daily Demo” is made." in text
    [made] = data(owner.api.get("/lists"))["items"]
    assert (made["title"], made["slug"], made["tagline"]) == ("The Daily Demo", name, None)


@pytest.mark.parametrize(
    ("field", "typed"),
    [("slug", "Not A Slug"), ("slug", "123"), ("title", " "), ("tagline", "x" * 501)],
)
def test_what_is_wrong_stands_beside_its_field_and_what_was_typed_stays(
    owner: OwnerAtConsole, field: str, typed: str
) -> None:
    values = {"title": "Title <b>", "slug": slug(), "tagline": "A line", field: typed}
    reply = owner.send(NEW, **values)
    text = shown(reply, 422)
    assert wrong_beside(text, field)
    [(_, kept)] = forms_of(reply)
    assert {name: kept[name].strip() for name in values} == {
        name: value.strip() for name, value in values.items()
    }
    assert lists_of(owner) == []


def test_a_slug_that_is_taken_is_told_beside_it(owner: OwnerAtConsole) -> None:
    taken = new_list(owner.api)["slug"]
    text = shown(owner.send(NEW, title="Another", slug=taken), 409)
    assert "taken" in wrong_beside(text, "slug")


def test_what_the_plan_has_no_room_for_is_told_and_noted(stack: Stack) -> None:
    with at_console(stack, stack.new_owner(plan=Plan.FREE)) as owner:
        for _ in range(5):
            new_list(owner.api)
        text = shown(owner.send(NEW, title="The sixth", slug=slug()), 403)
        assert 'role="alert"' in text
        assert "The sixth" in text
        noted = data(owner.api.get("/users/me/security-events"))["items"]
        assert "quota.refused" in {each["type"] for each in noted}


def test_a_person_changes_what_they_typed_and_nothing_else(owner: OwnerAtConsole) -> None:
    before = new_list(owner.api, consent_wording="I want it.", confirm_required=True)
    path = f"/console/lists/{before['id']}/settings"
    text = owner.do(
        path,
        0,
        ("confirm_required",),
        title="Another title",
        redirect_origins="https://www.example.com\r\n\r\n https://example.org ",
    )
    assert heading(text) == "Settings of Another title"
    assert "The list is changed." in text
    after = data(owner.api.get(f"/lists/{before['id']}"))
    expected = {
        "title": "Another title",
        "confirm_required": False,
        "redirect_origins": ["https://www.example.com", "https://example.org"],
    }
    unsteady = {"updated_at": after["updated_at"]}
    assert after == before | expected | unsteady
    assert "Nothing was to be changed." in owner.do(path)


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        ("title", ""),
        ("slug", "-"),
        ("redirect_origins", "https://www.example.com/path"),
        ("avatar_image_url", "javascript:alert(1)"),
        ("consent_wording", "x" * 2001),
        ("challenge_provider", "other"),
    ],
)
def test_settings_that_break_a_rule_change_nothing(
    owner: OwnerAtConsole, field: str, typed: str
) -> None:
    before = new_list(owner.api)
    reply = owner.send(f"/console/lists/{before['id']}/settings", **{field: typed})
    assert wrong_beside(shown(reply, 422), field)
    assert data(owner.api.get(f"/lists/{before['id']}")) == before


def test_a_list_is_archived_after_a_question(owner: OwnerAtConsole) -> None:
    made = new_list(owner.api, title="To be ended")
    path = f"/console/lists/{made['id']}/archive"
    assert heading(owner.see(path)) == "Archive To be ended?"
    assert lists_of(owner) == ["To be ended"]
    text = owner.do(path)
    assert "The list “To be ended” is archived." in text
    assert lists_of(owner) == []
    for page in ("", "/settings", "/archive"):
        owner.see(f"/console/lists/{made['id']}{page}", 404)


def test_a_list_shows_who_came_who_left_and_who_they_are(owner: OwnerAtConsole) -> None:
    made = new_list(owner.api)
    path = f"/console/lists/{made['id']}"
    assert "Nobody is on this list yet" in owner.see(path)
    people = [f"{name}.{made['slug']}@example.com" for name in ("a", "b", "c")]
    imported(owner.api, made["id"], of_addresses(*people))
    data(owner.api.patch(f"/lists/{made['id']}/members/{people[0]}", json={"type": "gold"}))
    gone = data(owner.api.get(f"/lists/{made['id']}/members/{people[1]}"))["user_id"]
    data(owner.api.delete(f"/subscriptions/{made['id']}/members/{gone}"))
    for days in ("30", "365", "nonsense"):
        text = owner.see(path, days=days)
        rows = rows_of(text)
        assert ["Gold", "1"] in rows
        assert ["Free", "1"] in rows
        assert ["Imported", "2"] in rows
        assert ["3", "1", "+2"] in [row[1:] for row in rows]
        assert "3 joined, 1 left. The table below has each number." in text
        assert text.count('<rect class="joined"') == text.count('<rect class="left"') == 1


def test_lists_lead_on_page_by_page(owner: OwnerAtConsole, stack: Stack) -> None:
    for number in range(51):
        new_list(owner.api, title=f"List number {number}")
    text = owner.see("/console/lists")
    assert "List number 1<" in text
    assert "List number 0<" not in text
    [cursor] = {each.split('"')[0] for each in text.split("?cursor=")[1:]}
    text = owner.see("/console/lists", cursor=cursor)
    assert [row[0] for row in rows_of(text)] == ["List", "List number 0"]
    owner.see("/console/lists", 400, cursor="x")


def test_the_call_that_a_page_shows_does_what_its_form_does(owner: OwnerAtConsole) -> None:
    [call] = calls_of(owner.see(NEW))
    body = call.body | {"slug": slug()}
    made = data(owner.api.request(call.method, call.path, json=body))
    [call] = calls_of(owner.see(f"/console/lists/{made['id']}/settings"))
    data(owner.api.request(call.method, call.path, json=call.body | {"title": "By a program"}))
    assert lists_of(owner) == ["By a program"]
    [call] = calls_of(owner.see(f"/console/lists/{made['id']}/archive"))
    data(owner.api.request(call.method, call.path))
    assert lists_of(owner) == []
