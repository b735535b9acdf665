"""The console's acts on many members: with their number before, watched, ended and undone."""

from collections.abc import Iterator

import pytest

from tests.consoles import OwnerAtConsole, at_console, calls_of, rows_of, shown, wrong_beside
from tests.contract.replies import data
from tests.contract.segments import new_segment, some_members, standing
from tests.contract.subscribers import new_list
from tests.stack import Stack, eventually


@pytest.fixture
def owner(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as found:
        yield found


@pytest.fixture
def list_id(owner: OwnerAtConsole) -> int:
    return int(new_list(owner.api)["id"])


def acts_of(list_id: int, rest: str = "") -> str:
    return f"/console/lists/{list_id}/acts{rest}"


def begun(owner: OwnerAtConsole, path: str, **typed: str) -> str:
    """The path of the page that watches the act."""
    reply = owner.send(path, **typed)
    assert reply.status_code == 303, reply.text
    return str(reply.headers["location"]).removeprefix(owner.visitor.stack.api_url)


def until(owner: OwnerAtConsole, path: str, words: str) -> str:
    """The page, once it says so."""

    def says() -> str:
        text = owner.see(path)
        return text if words in text else ""

    return str(eventually(says, what=words))


def test_members_who_were_chosen_are_tagged_and_it_is_undone(
    owner: OwnerAtConsole, list_id: int
) -> None:
    emails = some_members(owner.api, list_id, 3, vips=2)
    before = standing(owner.api, list_id, emails)
    path = acts_of(list_id, "/new?tag=vip")
    text = owner.see(path)
    assert "<b>2</b> members are chosen" in text
    assert "Do it to 2 members" in text
    watched = begun(owner, path, action="tag", tag_name="Patron")
    text = until(owner, watched, "2 of 2 changed")
    assert "Give the tag “Patron”" in text
    tags = [each["tags"] for each in standing(owner.api, list_id, emails)]
    assert tags == [["Patron", "vip"], ["Patron", "vip"], []]
    assert "The undo has begun." in owner.do(watched)
    assert "Undo it" not in until(owner, watched, "2 are as before")
    after = standing(owner.api, list_id, emails)
    assert [each["tags"] for each in after] == [each["tags"] for each in before]
    [_, row] = rows_of(owner.see(acts_of(list_id)))
    assert row[0] == "Give the tag “Patron”"
    assert "undone" in row[1].lower()


@pytest.mark.parametrize(
    ("typed", "changes"),
    [
        ({"action": "set_type", "tier": "gold"}, {"type": "gold"}),
        ({"action": "email_off"}, {"email_enabled": False}),
        ({"action": "remove"}, {"status": "removed"}),
        ({"action": "untag", "tag_name": "VIP"}, {"tags": []}),
    ],
)
def test_each_act_does_what_it_says(
    owner: OwnerAtConsole, list_id: int, typed: dict[str, str], changes: dict[str, object]
) -> None:
    [vip, other] = some_members(owner.api, list_id, 2, vips=1)
    segment = new_segment(owner.api, list_id)
    watched = begun(owner, acts_of(list_id, f"/new?segment={segment['id']}"), **typed)
    until(owner, watched, "1 of 1 changed")
    changed = data(owner.api.get(f"/lists/{list_id}/members/{vip}"))
    assert changes.items() <= changed.items()
    stayed = data(owner.api.get(f"/lists/{list_id}/members/{other}"))
    assert (stayed["type"], stayed["email_enabled"], stayed["status"]) == ("free", True, "active")


def test_nothing_chosen_means_all_active_members(owner: OwnerAtConsole, list_id: int) -> None:
    [gone, *_] = some_members(owner.api, list_id, 3)
    user_id = data(owner.api.get(f"/lists/{list_id}/members/{gone}"))["user_id"]
    data(owner.api.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    assert "Do it to 2 members" in owner.see(acts_of(list_id, "/new"))
    until(owner, begun(owner, acts_of(list_id, "/new"), action="email_off"), "2 of 2 changed")


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ({"action": "tag", "tag_name": ""}, "tag_name"),
        ({"action": "untag", "tag_name": "a,b"}, "tag_name"),
        ({"action": "set_type", "tier": "platinum"}, "tier"),
        ({"action": "explode"}, "action"),
    ],
)
def test_an_act_without_its_value_is_not_begun(
    owner: OwnerAtConsole, list_id: int, typed: dict[str, str], place: str
) -> None:
    some_members(owner.api, list_id, 1)
    text = shown(owner.send(acts_of(list_id, "/new"), **typed), 422)
    assert wrong_beside(text, place)
    assert "body." not in text
    assert "You have changed no members together yet" in owner.see(acts_of(list_id))


def test_a_filter_that_is_none_begins_nothing(owner: OwnerAtConsole, list_id: int) -> None:
    some_members(owner.api, list_id, 1)
    reply = owner.send(acts_of(list_id, "/new"), action="email_off", filter='{"field": "x"}')
    assert "filter.field" in shown(reply, 400).lower()
    assert "You have changed no members together yet" in owner.see(acts_of(list_id))


def test_an_act_that_waits_is_ended(quiet: Stack) -> None:
    # No worker takes it here.
    with at_console(quiet) as owner:
        list_id = new_list(owner.api)["id"]
        watched = begun(owner, acts_of(list_id, "/new"), action="email_off")
        text = owner.see(watched)
        assert "Under way: 0 changed so far" in text
        assert "every 1s" in text
        assert "The act ends." in owner.do(watched)
        text = owner.see(watched)
        assert "Ended early: 0 changed" in text
        assert "every 1s" not in text


def test_the_call_that_is_shown_does_the_same(owner: OwnerAtConsole, list_id: int) -> None:
    some_members(owner.api, list_id, 1, vips=1)
    [call] = calls_of(owner.see(acts_of(list_id, "/new"), tag="vip"))
    job = data(owner.api.request(call.method, call.path, json=call.body), 202)
    assert job["kind"] == "members.bulk"


def test_an_act_of_another_list_of_ones_own_is_not_on_this_one(
    owner: OwnerAtConsole, list_id: int
) -> None:
    other = new_list(owner.api)["id"]
    watched = begun(owner, acts_of(list_id, "/new"), action="email_off")
    number = watched.rpartition("/")[2]
    until(owner, watched, "0 of 0 changed")
    owner.see(acts_of(other, f"/{number}"), 404)
