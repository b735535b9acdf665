"""The console's pages of fields, tags and segments."""

from collections.abc import Iterator

import pytest

from tests.consoles import OwnerAtConsole, at_console, heading, rows_of, shown, wrong_beside
from tests.contract.replies import data
from tests.contract.segments import new_field, new_segment, some_members
from tests.contract.subscribers import new_list
from tests.stack import Stack

FIELDS = "/console/fields"


@pytest.fixture
def owner(stack: Stack) -> Iterator[OwnerAtConsole]:
    with at_console(stack) as found:
        yield found


@pytest.fixture
def list_id(owner: OwnerAtConsole) -> int:
    return int(new_list(owner.api)["id"])


# -- fields --------------------------------------------------------------------------------------


def test_a_field_is_made_changed_and_retired(owner: OwnerAtConsole) -> None:
    assert "You have no field yet" in owner.see(FIELDS)
    typed = {"label": "Size", "key": "size", "type": "choice", "choices": "S\r\nM\r\n"}
    text = owner.do(f"{FIELDS}/new", **typed, public="on")
    assert "The field “Size” is made." in text
    assert ["Size", "size", "One of some choices", "yes"] in rows_of(text)
    [made] = data(owner.api.get("/fields"))
    assert made["choices"] == ["S", "M"]
    path = f"{FIELDS}/{made['id']}"
    text = owner.do(path, 0, ("public",), label="Shirt", key="shirt", choices="S\nM\nL")
    assert "The field “Shirt” is changed." in text
    [changed] = data(owner.api.get("/fields"))
    expected = {"label": "Shirt", "key": "shirt", "choices": ["S", "M", "L"], "public": False}
    assert changed == made | expected
    assert "The field “Shirt” is retired." in owner.do(path, 1)
    assert data(owner.api.get("/fields")) == []
    owner.see(path, 404)


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ({"key": "No Key"}, "key"),
        ({"label": " "}, "label"),
        ({"type": "choice", "choices": ""}, "choices"),
        ({"type": "colour"}, "type"),
        ({"key": "city"}, "key"),
    ],
)
def test_a_field_that_breaks_a_rule_is_not_made(
    owner: OwnerAtConsole, typed: dict[str, str], place: str
) -> None:
    new_field(owner.api, "city")
    values = {"label": "A field", "key": "a_field", "type": "text", **typed}
    reply = owner.send(f"{FIELDS}/new", **values)
    status = 409 if typed == {"key": "city"} else 422
    assert wrong_beside(shown(reply, status), place)
    assert [each["key"] for each in data(owner.api.get("/fields"))] == ["city"]


# -- tags ----------------------------------------------------------------------------------------


def test_a_tag_is_renamed_and_taken_off_all_members(owner: OwnerAtConsole, list_id: int) -> None:
    [email, _] = some_members(owner.api, list_id, 2, vips=1)
    [tag] = data(owner.api.get(f"/lists/{list_id}/tags"))["items"]
    path = f"/console/lists/{list_id}/tags/{tag['id']}"
    assert "The tag is called “Patron” now." in owner.do(path, name="Patron")
    member = f"/lists/{list_id}/members/{email}"
    assert data(owner.api.get(member))["tags"] == ["Patron"]
    data(owner.api.patch(member, json={"add_tags": ["other"]}))
    assert wrong_beside(shown(owner.send(path, name="OTHER"), 409), "name")
    assert wrong_beside(shown(owner.send(path, name="a,b"), 422), "name")
    assert "No member has the tag “Patron” any more." in owner.do(path, 1)
    assert data(owner.api.get(member))["tags"] == ["other"]
    owner.see(path, 404)


def test_a_tag_of_another_list_is_not_on_this_one(owner: OwnerAtConsole, list_id: int) -> None:
    some_members(owner.api, list_id, 1, vips=1)
    [tag] = data(owner.api.get(f"/lists/{list_id}/tags"))["items"]
    other = new_list(owner.api)["id"]
    owner.see(f"/console/lists/{other}/tags/{tag['id']}", 404)


# -- segments ------------------------------------------------------------------------------------


def test_a_segment_is_made_counted_changed_and_deleted(owner: OwnerAtConsole, list_id: int) -> None:
    some_members(owner.api, list_id, 3, vips=2)
    base = f"/console/lists/{list_id}/segments"
    assert "This list has no segment yet" in owner.see(base)
    owner.do(f"{base}/new", name="VIPs", filter='{"field": "tag", "is": "vip"}')
    [made] = data(owner.api.get(f"/lists/{list_id}/segments"))["items"]
    path = f"{base}/{made['id']}"
    assert "<b>2</b> members now" in owner.see(path)
    owner.do(path, name="Others", filter='{"not": {"field": "tag", "is": "vip"}}')
    text = owner.see(path)
    assert "<b>1</b> member now" in text
    assert 'value="Others"' in text
    assert "is deleted. Its members stay." in owner.do(path, 1)
    assert data(owner.api.get(f"/lists/{list_id}/segments"))["items"] == []


@pytest.mark.parametrize(
    ("typed", "place", "status"),
    [
        ({"name": ""}, "name", 422),
        ({"name": "vips"}, "name", 409),
        ({"filter": ""}, "filter", 400),
        ({"filter": "{"}, "filter", 400),
        ({"filter": '{"field": "fields.gone", "is": "x"}'}, "filter", 400),
    ],
)
def test_a_segment_that_breaks_a_rule_is_not_made(
    owner: OwnerAtConsole, list_id: int, typed: dict[str, str], place: str, status: int
) -> None:
    new_segment(owner.api, list_id)
    values = {"name": "Another", "filter": '{"field": "tag", "is": "vip"}', **typed}
    reply = owner.send(f"/console/lists/{list_id}/segments/new", **values)
    assert wrong_beside(shown(reply, status), place)
    assert len(data(owner.api.get(f"/lists/{list_id}/segments"))["items"]) == 1


def test_a_segment_whose_field_was_retired_says_so(owner: OwnerAtConsole, list_id: int) -> None:
    field = new_field(owner.api, "city")
    segment = new_segment(owner.api, list_id, {"field": "fields.city", "is": "Rome"})
    data(owner.api.delete(f"/fields/{field['id']}"))
    path = f"/console/lists/{list_id}/segments/{segment['id']}"
    text = owner.see(path)
    assert heading(text) == "Change a segment"
    assert "fields.city" in text
    owner.do(path, filter='{"field": "tag", "is": "vip"}')


def test_a_segment_is_kept_from_what_was_found(owner: OwnerAtConsole, list_id: int) -> None:
    text = owner.see(f"/console/lists/{list_id}/segments/new", q="rome", type="gold")
    assert "&#34;contains&#34;: &#34;rome&#34;" in text
    assert "&#34;is&#34;: &#34;gold&#34;" in text
