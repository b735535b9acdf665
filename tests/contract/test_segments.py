"""Tests of segments and tags."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from services.subscriptions.filters.member_filter import MAX_FILTER_BYTES
from services.subscriptions.segments import MAX_SEGMENTS_PER_LIST
from tests.support.http.replies import data, problem
from tests.support.lists.segments import (
    VIP,
    bulk_action,
    filter_of_bytes,
    import_some_members,
    new_field,
    new_segment,
    put_member,
    set_member,
    tag_members,
    tag_names,
)
from tests.support.lists.subscribers import Reader, fetch_members, new_address, new_list
from tests.support.stack.held_rows import uncommitted

END_COUNT = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%%tag_ids%%'
"""


def tag_id(client: httpx2.Client, list_id: int, name: str) -> int:
    items = data(client.get(f"/lists/{list_id}/tags"))["items"]
    [id_] = [each["id"] for each in items if each["name"] == name]
    return int(id_)


def test_segment_is_created_and_counted_and_changed_and_deleted(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    import_some_members(client, list_id, 3, vips=2)
    # A person who has left the list isn't counted, because a filter without a condition on the
    # status matches only active members.
    reader.joins(list_id).leaves(list_id)
    segment = new_segment(client, list_id, name="  VIPs ")
    fields = {"id", "list_id", "name", "filter", "watch", "created_at", "updated_at"}
    assert segment.keys() == {*fields, "count", "count_is_exact"}
    assert (segment["list_id"], segment["name"], segment["filter"]) == (list_id, "VIPs", VIP)
    assert (segment["count"], segment["count_is_exact"]) == (2, True)
    path = f"/lists/{list_id}/segments/{segment['id']}"
    assert data(client.get(path)) == segment
    inverted_filter = {"not": VIP}
    changed_segment = data(client.patch(path, json={"filter": inverted_filter}))
    assert (changed_segment["filter"], changed_segment["name"]) == (inverted_filter, "VIPs")
    assert data(client.get(path))["count"] == 1
    assert data(client.patch(path, json={"name": "Others"}))["filter"] == inverted_filter
    assert [each["name"] for each in read_segments(client, list_id)] == ["Others"]
    assert data(client.delete(path)) == 1
    assert data(client.delete(path)) == 0
    problem(client.get(path), 404, "segment.not_found")
    assert read_segments(client, list_id) == []


def read_segments(client: httpx2.Client, list_id: int) -> list[dict[str, Any]]:
    return list(data(client.get(f"/lists/{list_id}/segments"))["items"])


def test_segment_name_is_unique_per_list_ignoring_case(client: httpx2.Client, list_id: int) -> None:
    new_segment(client, list_id, name="Straße")
    path = f"/lists/{list_id}/segments"
    duplicate = {"name": "STRASSE", "filter": VIP}
    problem(client.post(path, json=duplicate), 409, "segment.name_taken")
    other_segment = new_segment(client, list_id, name="Other")
    rename_reply = client.patch(f"{path}/{other_segment['id']}", json={"name": "strasse"})
    problem(rename_reply, 409, "segment.name_taken")
    # Another list may have a segment with the same name.
    new_segment(client, new_list(client)["id"], name="Straße")


@pytest.mark.parametrize("name", ["", "   ", "x" * 101, "two\nlines"])
def test_segment_rejects_an_empty_or_long_or_multiline_name(
    client: httpx2.Client, list_id: int, name: str
) -> None:
    reply = client.post(f"/lists/{list_id}/segments", json={"name": name, "filter": VIP})
    body = problem(reply, 422, "segment.name")
    assert [each["field"] for each in body["errors"]] == ["body.name"]


@pytest.mark.parametrize(
    ("member_filter", "place"),
    [
        ({"all": [VIP, {"field": "shoe_size", "is": 43}]}, "filter.all[1].field"),
        ({"field": "fields.shoe_size", "is": 43}, "filter.field"),
        ({}, "filter"),
    ],
)
def test_malformed_segment_filter_is_rejected_with_the_place_of_the_error(
    client: httpx2.Client, list_id: int, member_filter: Any, place: str
) -> None:
    path = f"/lists/{list_id}/segments"
    segment = new_segment(client, list_id)
    for reply in (
        client.post(path, json={"name": "Another", "filter": member_filter}),
        client.patch(f"{path}/{segment['id']}", json={"filter": member_filter}),
        bulk_action(client, list_id, "remove", filter=member_filter),
        client.post(f"/lists/{list_id}/exports", json={"kind": "members", "filter": member_filter}),
    ):
        body = problem(reply, 400, "filter.invalid")
        assert [each["field"] for each in body["errors"]] == [place]


def test_filter_of_a_segment_or_export_is_rejected_above_the_maximum_size(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}/segments"
    segment = new_segment(client, list_id)
    largest_filter, too_large_filter = (
        filter_of_bytes(size) for size in (MAX_FILTER_BYTES, MAX_FILTER_BYTES + 1)
    )
    exports = f"/lists/{list_id}/exports"
    with stack.client(stack.create_key(owner.user_id, Scope.DELIVERY)) as delivery_client:
        for reply in (
            client.post(path, json={"name": "Another", "filter": too_large_filter}),
            client.patch(f"{path}/{segment['id']}", json={"filter": too_large_filter}),
            bulk_action(client, list_id, "remove", filter=too_large_filter),
            client.post(exports, json={"kind": "members", "filter": too_large_filter}),
            delivery_client.post(exports, json={"kind": "delivery", "filter": too_large_filter}),
        ):
            body = problem(reply, 413, "filter.too_large")
            assert "This filter has 16,385 bytes." in body["message"]
            assert [each["field"] for each in body["errors"]] == ["body.filter"]
    data(client.patch(f"{path}/{segment['id']}", json={"filter": largest_filter}))
    [segment_after] = read_segments(client, list_id)
    assert segment_after["filter"] == largest_filter


def test_segment_follows_a_field_whose_key_changes(client: httpx2.Client, list_id: int) -> None:
    [ada, ben] = import_some_members(client, list_id, 2)
    field = new_field(client, "town")
    set_member(client, list_id, ada, fields={"town": "Rome"})
    in_rome = {"any": [{"not": {"not": {"field": "fields.town", "is": "rome"}}}]}
    segment = new_segment(client, list_id, in_rome)
    assert segment["filter"] == in_rome
    data(client.patch(f"/fields/{field['id']}", json={"key": "city"}))
    # The segment uses the renamed field, and not a new field that has the renamed field's old key.
    new_field(client, "town")
    set_member(client, list_id, ben, fields={"town": "Rome"})
    changed_segment = data(client.get(f"/lists/{list_id}/segments/{segment['id']}"))
    in_city = {"any": [{"not": {"not": {"field": "fields.city", "is": "rome"}}}]}
    assert (changed_segment["filter"], changed_segment["count"]) == (in_city, 1)


def test_segment_follows_a_tag_whose_name_changes(client: httpx2.Client, list_id: int) -> None:
    [_, _, *untagged_members] = import_some_members(client, list_id, 5, vips=2)
    expected_counts = {
        new_segment(client, list_id, {"field": "tag", "is": " VIP "}, "VIPs")["id"]: 2,
        new_segment(client, list_id, {"not": {"any": [VIP]}}, "Others")["id"]: 3,
        new_segment(client, list_id, {"field": "tag", "in": ["x", "vip"]}, "Some")["id"]: 2,
    }
    path = f"/lists/{list_id}/tags/{tag_id(client, list_id, 'vip')}"
    data(client.patch(path, json={"name": "Patrons"}))
    # The segments use the renamed tag, and not a new tag that has the renamed tag's old name.
    tag_members(client, list_id, "vip", *untagged_members)
    for segment_id, count in expected_counts.items():
        segment = data(client.get(f"/lists/{list_id}/segments/{segment_id}"))
        assert (segment["count"], segment["count_is_exact"]) == (count, True)
    assert [each["filter"] for each in read_segments(client, list_id)] == [
        {"field": "tag", "in": ["x", "Patrons"]},
        {"not": {"any": [{"field": "tag", "is": "Patrons"}]}},
        {"field": "tag", "is": "Patrons"},
    ]


def test_tag_in_use_by_a_segment_cannot_be_deleted(client: httpx2.Client, list_id: int) -> None:
    segment = new_segment(client, list_id, {"not": {"any": [VIP, {"field": "type", "is": "gold"}]}})
    path = f"/lists/{list_id}/tags/{tag_id(client, list_id, 'vip')}"
    error = problem(client.delete(path), 409, "tag.in_use")
    assert error["used_by"] == [{"kind": "segment", "id": segment["id"], "name": "VIPs"}]
    assert "the segment 'VIPs'" in error["message"]
    # After the segment's filter no longer contains the tag, the tag can be deleted. The new filter
    # contains the same number as the tag's id, but as the id of an import.
    import_condition = {"field": "import_id", "is": int(path.rpartition("/")[2])}
    filter_without_tag = {"all": [import_condition, {"field": "tag", "exists": True}]}
    data(
        client.patch(
            f"/lists/{list_id}/segments/{segment['id']}", json={"filter": filter_without_tag}
        )
    )
    assert data(client.delete(path)) == 1


def test_segment_with_a_retired_field_is_rejected_when_used_but_can_be_changed(
    client: httpx2.Client, list_id: int
) -> None:
    field = new_field(client, "town")
    segment = new_segment(client, list_id, {"field": "fields.town", "is": "Rome"})
    assert data(client.delete(f"/fields/{field['id']}")) == 1
    new_field(client, "town")
    path = f"/lists/{list_id}/segments/{segment['id']}"
    for reply in (
        client.get(path),
        bulk_action(client, list_id, "remove", segment_id=segment["id"]),
        client.post(
            f"/lists/{list_id}/exports", json={"kind": "members", "segment_id": segment["id"]}
        ),
    ):
        assert "'town'" in problem(reply, 409, "segment.field_retired")["message"]
    # A segment is still listed after a field in its filter was retired, and the owner can change
    # the filter.
    [listed_segment] = read_segments(client, list_id)
    assert listed_segment["filter"] == {"field": "fields.town", "is": "Rome"}
    data(client.patch(path, json={"filter": VIP}))
    assert data(client.get(path))["count"] == 0


def test_list_has_a_maximum_number_of_segments(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    stack.query(
        "INSERT INTO segments (list_id, name, folded, filter)"
        " SELECT %s, n::text, n::text, '{}' FROM generate_series(2, %s) AS n",
        *(list_id, MAX_SEGMENTS_PER_LIST),
    )
    new_segment(client, list_id)
    reply = client.post(f"/lists/{list_id}/segments", json={"name": "Beyond", "filter": VIP})
    problem(reply, 409, "segment.too_many")


def test_segment_is_created_once_although_counting_its_members_fails(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    import_some_members(client, list_id, 2, vips=1)
    with (
        uncommitted(stack, "LOCK TABLE subscriptions IN ACCESS EXCLUSIVE MODE"),
        ThreadPoolExecutor(1) as pool,
    ):
        creation = pool.submit(new_segment, client, list_id)
        eventually(lambda: stack.query(END_COUNT), what="the end of the count")
        segment = creation.result()
    assert (segment["count"], segment["count_is_exact"]) == (0, False)
    [listed_segment] = read_segments(client, list_id)
    assert listed_segment["id"] == segment["id"]


def test_segment_is_accessible_only_through_its_own_list_and_owner(
    client: httpx2.Client, other_owner: httpx2.Client, list_id: int
) -> None:
    segment = new_segment(client, list_id)
    other_list_id = new_list(client)["id"]
    foreign_list_id = new_list(other_owner)["id"]
    for list_id_in_path, caller in ((other_list_id, client), (foreign_list_id, other_owner)):
        segment_path = f"/lists/{list_id_in_path}/segments/{segment['id']}"
        problem(caller.get(segment_path), 404, "segment.not_found")
        problem(caller.patch(segment_path, json={"name": "Mine"}), 404, "segment.not_found")
        assert data(caller.delete(segment_path)) == 0
        problem(
            bulk_action(caller, list_id_in_path, "remove", segment_id=segment["id"]),
            404,
            "segment.not_found",
        )
        export = {"kind": "members", "segment_id": segment["id"]}
        problem(
            caller.post(f"/lists/{list_id_in_path}/exports", json=export), 404, "segment.not_found"
        )
    problem(other_owner.get(f"/lists/{list_id}/segments"), 403, "list.not_owner")
    # A filter can't use a custom field that belongs to another owner.
    new_field(client, "town")
    member_filter = {"field": "fields.town", "is": "Rome"}
    reply = other_owner.post(
        f"/lists/{foreign_list_id}/segments", json={"name": "Rome", "filter": member_filter}
    )
    problem(reply, 400, "filter.invalid")
    assert data(client.get(f"/lists/{list_id}/segments/{segment['id']}"))["name"] == "VIPs"


@pytest.fixture
def member_address(client: httpx2.Client, list_id: int) -> str:
    """The e-mail address of a new member of the list `list_id`."""
    address = new_address()
    put_member(client, list_id, address)
    return address


def change_member(
    client: httpx2.Client, list_id: int | str, member_address: str, **values: object
) -> list[str]:
    reply = client.patch(f"/lists/{list_id}/members/{member_address}", json=values)
    return list(data(reply)["tags"])


def test_member_tags_are_replaced_and_added_and_removed(
    client: httpx2.Client, list_id: int, member_address: str
) -> None:
    assert change_member(client, list_id, member_address, tags=["VIP", "press"]) == ["press", "VIP"]
    assert change_member(client, list_id, member_address, add_tags=["a fair"]) == [
        "a fair",
        "press",
        "VIP",
    ]
    tags_to_remove = ["PRESS", "unknown"]
    assert change_member(client, list_id, member_address, remove_tags=tags_to_remove) == [
        "a fair",
        "VIP",
    ]
    assert change_member(client, list_id, member_address, name="Ada") == ["a fair", "VIP"]
    assert fetch_members(client, list_id, email=member_address)[0]["tags"] == ["a fair", "VIP"]
    assert change_member(
        client, list_id, member_address, tags=["x"], add_tags=["y"], remove_tags=["X"]
    ) == ["y"]
    assert change_member(client, list_id, member_address, tags=[]) == []
    # Removing an unknown tag doesn't create the tag.
    assert set(tag_names(client, list_id)) == {"VIP", "press", "a fair", "x", "y"}


def test_tag_keeps_its_first_spelling_regardless_of_case(
    client: httpx2.Client, list_id: int, member_address: str
) -> None:
    assert change_member(client, list_id, member_address, tags=[" Straße ", "STRASSE"]) == [
        "Straße"
    ]
    assert change_member(client, list_id, member_address, add_tags=["strasse"]) == ["Straße"]
    assert tag_names(client, list_id) == ["Straße"]


@pytest.mark.parametrize("invalid_tag", ["", " ", "a,b", "x" * 41, "a\nb", "a\0b", 5, None])
def test_malformed_tags_are_rejected(
    client: httpx2.Client, list_id: int, member_address: str, invalid_tag: str | int | None
) -> None:
    for name in ("tags", "add_tags", "remove_tags"):
        body = {name: ["fine", invalid_tag]}
        reply = client.patch(f"/lists/{list_id}/members/{member_address}", json=body)
        error = problem(reply, 422, "body.invalid")
        assert error["errors"][0]["field"] == f"body.{name}[1]"
    assert tag_names(client, list_id) == []


def test_member_has_at_most_100_tags(
    client: httpx2.Client, list_id: int, member_address: str
) -> None:
    path = f"/lists/{list_id}/members/{member_address}"
    tags = [f"tag {number}" for number in range(100)]
    assert len(change_member(client, list_id, member_address, tags=tags)) == 100
    problem(client.patch(path, json={"add_tags": ["more"]}), 422, "tag.too_many_of_member")
    problem(client.patch(path, json={"tags": [*tags, "more"]}), 422, "body.invalid")
    assert "more" not in tag_names(client, list_id)
    assert len(change_member(client, list_id, member_address, add_tags=["TAG 7"])) == 100


def test_list_has_at_most_10_000_tags(
    stack: Stack, client: httpx2.Client, list_id: int, member_address: str
) -> None:
    stack.query(
        "INSERT INTO tags (list_id, name, folded)"
        " SELECT %s, 't' || n, 't' || n FROM generate_series(1, 9999) AS n",
        list_id,
    )
    path = f"/lists/{list_id}/members/{member_address}"
    problem(client.patch(path, json={"tags": ["one", "two"]}), 409, "tag.too_many")
    assert change_member(client, list_id, member_address, tags=["one", "T9999"]) == ["one", "t9999"]
    problem(client.patch(path, json={"tags": ["two"]}), 409, "tag.too_many")


def test_renamed_tag_changes_for_all_members_without_rewriting_them(
    stack: Stack, client: httpx2.Client, list_id: int, member_address: str
) -> None:
    change_member(client, list_id, member_address, tags=["VIP", "press"])
    query = "SELECT xmin, ctid, * FROM subscriptions WHERE list_id = %s"
    rows_before = stack.query(query, list_id)
    path = f"/lists/{list_id}/tags/{tag_id(client, list_id, 'VIP')}"
    assert data(client.patch(path, json={"name": "Patrons"}))["name"] == "Patrons"
    assert fetch_members(client, list_id, email=member_address)[0]["tags"] == ["Patrons", "press"]
    problem(client.patch(path, json={"name": "PRESS"}), 409, "tag.name_taken")
    assert data(client.patch(path, json={"name": "patrons"}))["name"] == "patrons"
    assert stack.query(query, list_id) == rows_before


def test_deleted_tag_is_removed_from_all_members_and_not_restored_by_a_new_tag(
    client: httpx2.Client, list_id: int, member_address: str
) -> None:
    other_address = new_address()
    put_member(client, list_id, other_address, tags=["VIP"])
    change_member(client, list_id, member_address, tags=["VIP", "press"])
    path = f"/lists/{list_id}/tags/{tag_id(client, list_id, 'VIP')}"
    assert data(client.delete(path)) == 1
    problem(client.delete(path), 404, "tag.not_found")
    assert tag_names(client, list_id) == ["press"]
    assert change_member(client, list_id, member_address, add_tags=["vip"]) == ["press", "vip"]
    assert fetch_members(client, list_id, email=other_address)[0]["tags"] == []


def test_concurrent_tagging_creates_each_tag_only_once(client: httpx2.Client, list_id: int) -> None:
    names = [f"tag {number}" for number in range(20)]
    addresses = [new_address() for _ in range(6)]
    for address in addresses:
        put_member(client, list_id, address)

    def tag(index: int) -> list[str]:
        # Each thread sends the tag names in a different order. Every second thread sends the tag
        # names in capitals.
        rotated_names = [*names[index:], *names[:index]]
        tags = [each.upper() if index % 2 else each for each in rotated_names]
        return change_member(client, list_id, addresses[index], tags=tags)

    with ThreadPoolExecutor(6) as pool:
        tags_of_members = list(pool.map(tag, range(6)))
    assert len(tag_names(client, list_id)) == len(names)
    assert tags_of_members == [tags_of_members[0]] * 6


def test_tag_is_accessible_only_through_its_own_list_and_owner(
    client: httpx2.Client, other_owner: httpx2.Client, list_id: int, member_address: str
) -> None:
    change_member(client, list_id, member_address, tags=["VIP"])
    own_tag_id = tag_id(client, list_id, "VIP")
    other_list_id = new_list(client)["id"]
    foreign_list_id = new_list(other_owner)["id"]
    for caller, wrong_list_ids in ((client, [other_list_id]), (other_owner, [foreign_list_id])):
        for wrong_list_id in wrong_list_ids:
            path = f"/lists/{wrong_list_id}/tags/{own_tag_id}"
            problem(caller.patch(path, json={"name": "x"}), 404, "tag.not_found")
            problem(caller.delete(path), 404, "tag.not_found")
            assert tag_names(caller, wrong_list_id) == []
    problem(other_owner.get(f"/lists/{list_id}/tags"), 403, "list.not_owner")
    problem(other_owner.delete(f"/lists/{list_id}/tags/{own_tag_id}"), 403, "list.not_owner")
    assert tag_names(client, list_id) == ["VIP"]
