"""Tests of the console pages for custom fields, tags, segments and bulk actions."""

import html
import re

import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.lists.segments import import_some_members, new_field, new_segment, read_members
from tests.support.lists.subscribers import new_list
from tests.support.people.consoles import (
    OwnerAtConsole,
    at_console,
    heading,
    read_error,
    read_page,
    rows_of,
)

FIELDS_PATH = "/console/fields"


@pytest.fixture
def console_list_id(console: OwnerAtConsole) -> int:
    """The id of a new mailing list that belongs to the owner in the fixture `console`."""
    return int(new_list(console.api)["id"])


def test_console_creates_and_changes_and_retires_a_custom_field(console: OwnerAtConsole) -> None:
    assert "No fields yet" in console.see(FIELDS_PATH)
    form_values = {"label": "Size", "key": "size", "type": "choice", "choices": "S\r\nM\r\n"}
    text = console.do(f"{FIELDS_PATH}/new", **form_values, public="on")
    assert "The field “Size” was created." in text
    assert ["Size", "One of several choices", "size", "yes"] in rows_of(text)
    [created_field] = data(console.api.get("/fields"))
    assert created_field["choices"] == ["S", "M"]
    path = f"{FIELDS_PATH}/{created_field['id']}"
    text = console.do(path, 0, ("public",), label="Shirt", key="shirt", choices="S\nM\nL")
    assert "The field “Shirt” was changed." in text
    [changed_field] = data(console.api.get("/fields"))
    expected = {"label": "Shirt", "key": "shirt", "choices": ["S", "M", "L"], "public": False}
    assert changed_field == created_field | expected
    assert "The field “Shirt” was retired." in console.do(path, 1)
    assert data(console.api.get("/fields")) == []
    console.see(path, 404)


def test_console_lists_the_fields_of_the_sign_up_page_as_chips(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    new_field(console.api, "interest", label="What interests you most?", public=True)
    page = console.see(f"/console/lists/{console_list_id}/public")
    [chips] = re.findall(
        r'<ul class="chips" aria-label="Fields on the page">(.*?)</ul>', page, re.S
    )
    labels = re.findall(r"<li><bdi>(.*?)</bdi></li>", chips)
    assert labels == ["E-mail address", "Name", "What interests you most?"]
    assert "?</bdi>." not in page


def test_console_rejects_a_custom_field_that_breaks_a_rule(console: OwnerAtConsole) -> None:
    new_field(console.api, "city")
    for field_name, invalid_value, status in (
        ("key", "No Key", 422),
        ("label", " ", 422),
        ("choices", "one", 422),
        ("type", "colour", 422),
        ("key", "city", 409),
    ):
        form_values = {
            "label": "A field",
            "key": "a_field",
            "type": "text",
            field_name: invalid_value,
        }
        reply = console.send(f"{FIELDS_PATH}/new", **form_values)
        assert read_error(read_page(reply, status), field_name)
    assert [each["key"] for each in data(console.api.get("/fields"))] == ["city"]


def test_console_renames_a_tag_and_removes_a_tag_from_all_members(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    [email, _] = import_some_members(console.api, console_list_id, 2, vips=1)
    [tag] = data(console.api.get(f"/lists/{console_list_id}/tags"))["items"]
    path = f"/console/lists/{console_list_id}/tags/{tag['id']}"
    assert "The tag was renamed to “Patron”." in console.do(path, name="Patron")
    member_path = f"/lists/{console_list_id}/members/{email}"
    assert data(console.api.get(member_path))["tags"] == ["Patron"]
    data(console.api.patch(member_path, json={"add_tags": ["other"]}))
    assert read_error(read_page(console.send(path, name="OTHER"), 409), "name")
    assert read_error(read_page(console.send(path, name="a,b"), 422), "name")
    assert "<b>1 member</b> loses the tag." in console.see(f"{path}/delete")
    assert "The tag “Patron” was deleted." in console.do(f"{path}/delete")
    assert data(console.api.get(member_path))["tags"] == ["other"]
    console.see(path, 404)


def see_complete_count(console: OwnerAtConsole, path: str) -> str:
    """Reload a console page until its count of members is complete, and return the page.

    A count that takes more than two seconds is stopped, and the page shows a lower bound.
    """

    def see_page() -> str | None:
        text = console.see(path)
        return None if "At least" in text else text

    return eventually(see_page, what="a count of all members")


def test_console_creates_and_counts_and_changes_and_deletes_a_segment(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    import_some_members(console.api, console_list_id, 3, vips=2)
    base = f"/console/lists/{console_list_id}/segments"
    assert "No segments yet" in console.see(base)
    # The form for a new segment shows the number of members before the user changes the filter.
    eventually(
        lambda: "<b>3</b> members match" in console.see(f"{base}/new"), what="the first count"
    )
    console.do(f"{base}/new", name="VIPs", filter='{"field": "tag", "is": "vip"}', use="json")
    [created_segment] = data(console.api.get(f"/lists/{console_list_id}/segments"))["items"]
    path = f"{base}/{created_segment['id']}"
    assert "<b>2</b> members match" in see_complete_count(console, path)
    console.do(path, name="Others", filter='{"not": {"field": "tag", "is": "vip"}}', use="json")
    text = see_complete_count(console, path)
    assert "<b>1</b> member matches" in text
    assert 'value="Others"' in text
    assert "was deleted. Its members stay on the list." in console.do(path, 2)
    assert data(console.api.get(f"/lists/{console_list_id}/segments"))["items"] == []


def test_console_list_of_segments_shows_the_number_of_members_of_each(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    import_some_members(console.api, console_list_id, 3, vips=2)
    path = f"/lists/{console_list_id}/segments"
    for tag in ("vip", "guest"):
        body = {"name": tag, "filter": {"field": "tag", "is": tag}}
        data(console.api.post(path, json=body), 200, 201)

    def read_counts() -> list[list[str]] | None:
        rows = [
            [row[0], row[2]] for row in rows_of(console.see(f"/console{path}?count=exactly"))[1:]
        ]
        # On a busy machine, an ellipsis replaces a count that takes too long.
        return None if "…" in str(rows) else rows

    assert eventually(read_counts, what="the counts") == [
        ["guest", "0 members"],
        ["vip", "2 members"],
    ]


def test_console_list_of_tags_shows_the_number_of_members_of_each(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    emails = import_some_members(console.api, console_list_id, 3, vips=2)
    data(
        console.api.patch(
            f"/lists/{console_list_id}/members/{emails[2]}", json={"add_tags": ["guest"]}
        )
    )

    def read_counts() -> list[list[str]] | None:
        rows = [row[:2] for row in rows_of(console.see(f"/console/lists/{console_list_id}/tags"))]
        return None if "…" in str(rows) else rows[1:]

    assert eventually(read_counts, what="the counts") == [
        ["guest", "1 member"],
        ["vip", "2 members"],
    ]


def test_console_list_of_segments_shows_numbers_also_for_an_invalid_filter(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    field = new_field(console.api, "city")
    new_segment(console.api, console_list_id, {"field": "fields.city", "is": "Rome"})
    data(console.api.delete(f"/fields/{field['id']}"))
    text = console.see(f"/console/lists/{console_list_id}/segments?count=exactly")
    assert rows_of(text)[1][2] == "0 members"
    # The page has its final counts, so that a script doesn't request them again.
    assert "hx-get" not in text


def test_console_rejects_a_segment_that_breaks_a_rule(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    new_segment(console.api, console_list_id)
    for field_name, invalid_value, status in (
        ("name", "", 422),
        ("name", "vips", 409),
        ("filter", "{", 400),
        ("filter", '{"field": "fields.gone", "is": "x"}', 400),
    ):
        form_values = {"name": "Another", "filter": '{"field": "tag", "is": "vip"}', "use": "json"}
        form_values[field_name] = invalid_value
        reply = console.send(f"/console/lists/{console_list_id}/segments/new", **form_values)
        assert read_error(read_page(reply, status), field_name)
    assert len(data(console.api.get(f"/lists/{console_list_id}/segments"))["items"]) == 1


def test_console_segment_page_names_a_retired_field_in_its_filter(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    field = new_field(console.api, "city")
    segment = new_segment(console.api, console_list_id, {"field": "fields.city", "is": "Rome"})
    data(console.api.delete(f"/fields/{field['id']}"))
    path = f"/console/lists/{console_list_id}/segments/{segment['id']}"
    text = console.see(path)
    assert heading(text) == "VIPs"
    assert "fields.city" in text
    console.do(path, filter='{"field": "tag", "is": "vip"}', use="json")


def bulk_actions_path(list_id: int, suffix: str = "") -> str:
    return f"/console/lists/{list_id}/bulk-actions{suffix}"


def start_bulk_action(console: OwnerAtConsole, path: str, **form_values: str) -> str:
    """Start a bulk action, and return the path of the page that shows its progress."""
    reply = console.send(path, **form_values)
    assert reply.status_code == 303, reply.text
    return str(reply.headers["location"]).removeprefix(console.visitor.stack.api_url)


def follow_members_link(console: OwnerAtConsole, text: str) -> list[str]:
    """Open the link "See these members", and return the sorted addresses on that page."""
    [path] = re.findall(r'href="[^"]*?(/console/[^"]+)">See these members</a>', text)
    return sorted(re.findall(r'name="chosen" value="(.*?)"', console.see(html.unescape(path))))


def see_until(console: OwnerAtConsole, path: str, words: str) -> str:
    """Reload a console page until it contains ``words``, and return it."""

    def see_page() -> str:
        text = console.see(path)
        return text if words in text else ""

    return eventually(see_page, what=words)


def test_console_tags_selected_members_in_bulk_and_undoes_that(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    emails = import_some_members(console.api, console_list_id, 3, vips=2)
    members_before = read_members(console.api, console_list_id, emails)
    path = bulk_actions_path(console_list_id, "/new?tag=vip")
    text = console.see(path)
    assert "<b>2</b> members selected" in text
    assert "Apply to 2 members" in text
    progress_path = start_bulk_action(console, path, action="tag", tag_name="Patron")
    # A bulk action is not found under the path of another list.
    console.see(progress_path.replace(str(console_list_id), str(new_list(console.api)["id"])), 404)
    text = see_until(console, progress_path, "2 of 2 members changed")
    assert "Add the tag “Patron”" in text
    assert follow_members_link(console, text) == sorted(emails[:2])
    tags = [each["tags"] for each in read_members(console.api, console_list_id, emails)]
    assert tags == [["Patron", "vip"], ["Patron", "vip"], []]
    assert 'class="notice"' not in console.do(progress_path)
    assert "Undo bulk action" not in see_until(console, progress_path, "2 members restored")
    members_after = read_members(console.api, console_list_id, emails)
    assert [each["tags"] for each in members_after] == [each["tags"] for each in members_before]
    # The list of bulk actions undoes a bulk action, too.
    path = bulk_actions_path(console_list_id)
    progress_path = start_bulk_action(
        console, f"{path}/new?tag=vip", action="tag", tag_name="Patron"
    )
    see_until(console, progress_path, "2 of 2 members changed")
    console.do(path)
    see_until(console, progress_path, "2 members restored")
    [_, _, bulk_action_row] = rows_of(console.see(path))
    assert bulk_action_row[3] == "–"
    assert bulk_action_row[0] == "Add the tag “Patron”"
    assert "undone" in bulk_action_row[1].lower()


def test_console_changes_the_tier_of_a_segment_in_bulk(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    emails = import_some_members(console.api, console_list_id, 2, vips=1)
    segment = new_segment(console.api, console_list_id)
    path = bulk_actions_path(console_list_id, f"/new?segment={segment['id']}")
    progress_path = start_bulk_action(console, path, action="set_type", tier="gold")
    see_until(console, progress_path, "1 of 1 member changed")
    tiers = [each["type"] for each in read_members(console.api, console_list_id, emails)]
    assert tiers == ["gold", "free"]


@pytest.mark.parametrize(
    ("query", "form_values", "expected_count"),
    [
        ("?tag=vip", {"action": "untag", "tag_name": "vip"}, None),
        ("?type=free", {"action": "untag", "tag_name": "vip"}, 3),
        ("?type=free", {"action": "set_type", "tier": "gold"}, 3),
        ("?status=active", {"action": "email_off"}, 3),
        ("?status=active", {"action": "remove"}, 3),
    ],
)
def test_console_links_a_finished_bulk_action_to_its_members(
    console: OwnerAtConsole,
    console_list_id: int,
    *,
    query: str,
    form_values: dict[str, str],
    expected_count: int | None,
) -> None:
    import_some_members(console.api, console_list_id, 3, vips=2)
    progress_path = start_bulk_action(
        console, bulk_actions_path(console_list_id, f"/new{query}"), **form_values
    )
    text = see_until(console, progress_path, "Done: ")
    if expected_count is None:
        assert "See these members" not in text
    else:
        assert len(follow_members_link(console, text)) == expected_count


def test_console_rejects_a_bulk_action_without_a_valid_value(
    console: OwnerAtConsole, console_list_id: int
) -> None:
    for form_values, field_name in (
        ({"action": "tag", "tag_name": ""}, "tag_name"),
        ({"action": "set_type", "tier": "platinum"}, "tier"),
        ({"action": "explode"}, "action"),
    ):
        text = read_page(
            console.send(bulk_actions_path(console_list_id, "/new"), **form_values), 422
        )
        assert read_error(text, field_name)
        assert ("Enter a tag." in text) == (field_name == "tag_name")
        assert "body." not in text
    assert "No bulk actions yet" in console.see(bulk_actions_path(console_list_id))


def test_console_cancels_a_queued_bulk_action(stack_without_workers: Stack) -> None:
    # The bulk action stays queued because the test stack runs no workers.
    with at_console(stack_without_workers) as console:
        list_id = new_list(console.api)["id"]
        progress_path = start_bulk_action(
            console, bulk_actions_path(list_id, "/new"), action="email_off"
        )
        text = console.see(progress_path)
        assert "Running: 0 members changed so far" in text
        assert "every 1s" in text
        assert "The bulk action was cancelled." in console.do(progress_path)
        text = console.see(progress_path)
        assert "Stopped early: 0 members changed" in text
        assert "every 1s" not in text
