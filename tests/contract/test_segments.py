from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from services.subscriptions.filters.member_filter import MAX_FILTER_BYTES
from services.subscriptions.segments import MAX_SEGMENTS_PER_LIST
from tests.support.http.replies import data, problem
from tests.support.lists.segments import (
    VIP,
    bulk_action,
    filter_of_bytes,
    new_field,
    new_segment,
    put,
    set_member,
    some_members,
    tag_id,
    tag_names,
    tagged,
)
from tests.support.lists.subscribers import Reader, members, new_address, new_list


def test_segment_is_created_and_counted_and_changed_and_deleted(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    some_members(client, list_id, 3, vips=2)
    # No filter below names a status, so active members alone count.
    reader.joins(list_id).leaves(list_id)
    made = new_segment(client, list_id, name="  VIPs ")
    assert made.keys() == {"id", "list_id", "name", "filter", "created_at", "updated_at"}
    assert (made["list_id"], made["name"], made["filter"]) == (list_id, "VIPs", VIP)
    path = f"/lists/{list_id}/segments/{made['id']}"
    counted = data(client.get(path))
    assert counted == {**made, "count": 2, "count_is_exact": True}
    others = {"not": VIP}
    changed = data(client.patch(path, json={"filter": others}))
    assert (changed["filter"], changed["name"]) == (others, "VIPs")
    assert data(client.get(path))["count"] == 1
    assert data(client.patch(path, json={"name": "Others"}))["filter"] == others
    assert [each["name"] for each in segments(client, list_id)] == ["Others"]
    assert data(client.delete(path)) == 1
    assert data(client.delete(path)) == 0
    problem(client.get(path), 404, "segment.not_found")
    assert segments(client, list_id) == []


def segments(client: httpx2.Client, list_id: int) -> list[dict[str, Any]]:
    return list(data(client.get(f"/lists/{list_id}/segments"))["items"])


def test_segment_name_is_unique_per_list_ignoring_case(client: httpx2.Client, list_id: int) -> None:
    new_segment(client, list_id, name="Straße")
    path = f"/lists/{list_id}/segments"
    again = {"name": "STRASSE", "filter": VIP}
    problem(client.post(path, json=again), 409, "segment.name_taken")
    other = new_segment(client, list_id, name="Other")
    renamed = client.patch(f"{path}/{other['id']}", json={"name": "strasse"})
    problem(renamed, 409, "segment.name_taken")
    # On another list it is free.
    new_segment(client, new_list(client)["id"], name="Straße")


def test_segment_rejects_an_empty_or_long_or_multiline_name(
    client: httpx2.Client, list_id: int
) -> None:
    for name in ["", "   ", "x" * 101, "two\nlines"]:
        reply = client.post(f"/lists/{list_id}/segments", json={"name": name, "filter": VIP})
        body = problem(reply, 422, "segment.name")
        assert [each["field"] for each in body["errors"]] == ["body.name"]


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ({"all": [VIP, {"field": "shoe_size", "is": 43}]}, "filter.all[1].field"),
        ({"field": "fields.shoe_size", "is": 43}, "filter.field"),
        ({}, "filter"),
    ],
)
def test_malformed_segment_filter_is_rejected_with_the_place_of_the_error(
    client: httpx2.Client, list_id: int, written: Any, place: str
) -> None:
    path = f"/lists/{list_id}/segments"
    made = new_segment(client, list_id)
    for reply in (
        client.post(path, json={"name": "Another", "filter": written}),
        client.patch(f"{path}/{made['id']}", json={"filter": written}),
        bulk_action(client, list_id, "remove", filter=written),
        client.post(f"/lists/{list_id}/exports", json={"kind": "members", "filter": written}),
    ):
        body = problem(reply, 400, "filter.invalid")
        assert [each["field"] for each in body["errors"]] == [place]


def test_filter_of_a_segment_or_export_is_rejected_above_the_maximum_size(
    stack: Stack, owner: Owner, client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}/segments"
    made = new_segment(client, list_id)
    largest, larger = (filter_of_bytes(size) for size in (MAX_FILTER_BYTES, MAX_FILTER_BYTES + 1))
    exports = f"/lists/{list_id}/exports"
    with stack.client(stack.create_key(owner.user_id, Scope.DELIVERY)) as sender:
        for reply in (
            client.post(path, json={"name": "Another", "filter": larger}),
            client.patch(f"{path}/{made['id']}", json={"filter": larger}),
            bulk_action(client, list_id, "remove", filter=larger),
            client.post(exports, json={"kind": "members", "filter": larger}),
            sender.post(exports, json={"kind": "delivery", "filter": larger}),
        ):
            body = problem(reply, 413, "filter.too_large")
            assert "This filter has 16,385 bytes." in body["message"]
            assert [each["field"] for each in body["errors"]] == ["body.filter"]
    data(client.patch(f"{path}/{made['id']}", json={"filter": largest}))
    [shown] = segments(client, list_id)
    assert shown["filter"] == largest


def test_segment_follows_a_field_whose_key_changes(client: httpx2.Client, list_id: int) -> None:
    [ada, ben] = some_members(client, list_id, 2)
    field = new_field(client, "town")
    set_member(client, list_id, ada, fields={"town": "Rome"})
    in_rome = {"any": [{"not": {"not": {"field": "fields.town", "is": "rome"}}}]}
    made = new_segment(client, list_id, in_rome)
    assert made["filter"] == in_rome
    data(client.patch(f"/fields/{field['id']}", json={"key": "city"}))
    # Another field that has the old key now is none of it.
    new_field(client, "town")
    set_member(client, list_id, ben, fields={"town": "Rome"})
    shown = data(client.get(f"/lists/{list_id}/segments/{made['id']}"))
    in_city = {"any": [{"not": {"not": {"field": "fields.city", "is": "rome"}}}]}
    assert (shown["filter"], shown["count"]) == (in_city, 1)


def test_segment_follows_a_tag_whose_name_changes(client: httpx2.Client, list_id: int) -> None:
    [_, _, *others] = some_members(client, list_id, 5, vips=2)
    segments_of = {
        new_segment(client, list_id, {"field": "tag", "is": " VIP "}, "VIPs")["id"]: 2,
        new_segment(client, list_id, {"not": {"any": [VIP]}}, "Others")["id"]: 3,
        new_segment(client, list_id, {"field": "tag", "in": ["x", "vip"]}, "Some")["id"]: 2,
    }
    path = f"/lists/{list_id}/tags/{tag_id(client, list_id, 'vip')}"
    data(client.patch(path, json={"name": "Patrons"}))
    # Another tag that has the old name now is none of them.
    tagged(client, list_id, "vip", *others)
    for segment_id, count in segments_of.items():
        found = data(client.get(f"/lists/{list_id}/segments/{segment_id}"))
        assert (found["count"], found["count_is_exact"]) == (count, True)
    assert [each["filter"] for each in segments(client, list_id)] == [
        {"field": "tag", "in": ["x", "Patrons"]},
        {"not": {"any": [{"field": "tag", "is": "Patrons"}]}},
        {"field": "tag", "is": "Patrons"},
    ]


def test_tag_in_use_by_a_segment_cannot_be_deleted(client: httpx2.Client, list_id: int) -> None:
    made = new_segment(client, list_id, {"not": {"any": [VIP, {"field": "type", "is": "gold"}]}})
    path = f"/lists/{list_id}/tags/{tag_id(client, list_id, 'vip')}"
    error = problem(client.delete(path), 409, "tag.in_use")
    assert error["used_by"] == [{"kind": "segment", "id": made["id"], "name": "VIPs"}]
    assert "the segment 'VIPs'" in error["message"]
    # A number that is as the tag's id is none of it.
    number = {"field": "import_id", "is": int(path.rpartition("/")[2])}
    several = {"all": [number, {"field": "tag", "exists": True}]}
    data(client.patch(f"/lists/{list_id}/segments/{made['id']}", json={"filter": several}))
    assert data(client.delete(path)) == 1


def test_segment_with_a_retired_field_is_rejected_when_used_but_can_be_changed(
    client: httpx2.Client, list_id: int
) -> None:
    field = new_field(client, "town")
    made = new_segment(client, list_id, {"field": "fields.town", "is": "Rome"})
    assert data(client.delete(f"/fields/{field['id']}")) == 1
    new_field(client, "town")
    path = f"/lists/{list_id}/segments/{made['id']}"
    for reply in (
        client.get(path),
        bulk_action(client, list_id, "remove", segment_id=made["id"]),
        client.post(
            f"/lists/{list_id}/exports", json={"kind": "members", "segment_id": made["id"]}
        ),
    ):
        assert "'town'" in problem(reply, 409, "segment.field_retired")["message"]
    # It is still shown, and can be mended.
    [shown] = segments(client, list_id)
    assert shown["filter"] == {"field": "fields.town", "is": "Rome"}
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


def test_segment_is_accessible_only_through_its_own_list_and_owner(
    client: httpx2.Client, other_owner: httpx2.Client, list_id: int
) -> None:
    made = new_segment(client, list_id)
    other = new_list(client)["id"]
    theirs = new_list(other_owner)["id"]
    for at, caller in ((other, client), (theirs, other_owner)):
        one = f"/lists/{at}/segments/{made['id']}"
        problem(caller.get(one), 404, "segment.not_found")
        problem(caller.patch(one, json={"name": "Mine"}), 404, "segment.not_found")
        assert data(caller.delete(one)) == 0
        problem(bulk_action(caller, at, "remove", segment_id=made["id"]), 404, "segment.not_found")
        export = {"kind": "members", "segment_id": made["id"]}
        problem(caller.post(f"/lists/{at}/exports", json=export), 404, "segment.not_found")
    problem(other_owner.get(f"/lists/{list_id}/segments"), 403, "list.not_owner")
    # A field of another owner's is no field.
    new_field(client, "town")
    filter_ = {"field": "fields.town", "is": "Rome"}
    reply = other_owner.post(f"/lists/{theirs}/segments", json={"name": "Rome", "filter": filter_})
    problem(reply, 400, "filter.invalid")
    assert data(client.get(f"/lists/{list_id}/segments/{made['id']}"))["name"] == "VIPs"


@pytest.fixture
def member_address(client: httpx2.Client, list_id: int) -> str:
    """The e-mail address of a new member of the list `list_id`."""
    address = new_address()
    put(client, list_id, address)
    return address


def change(
    client: httpx2.Client, list_id: int | str, member_address: str, **values: object
) -> list[str]:
    reply = client.patch(f"/lists/{list_id}/members/{member_address}", json=values)
    return list(data(reply)["tags"])


def test_member_tags_are_replaced_and_added_and_removed(
    client: httpx2.Client, list_id: int, member_address: str
) -> None:
    assert change(client, list_id, member_address, tags=["VIP", "press"]) == ["press", "VIP"]
    assert change(client, list_id, member_address, add_tags=["a fair"]) == [
        "a fair",
        "press",
        "VIP",
    ]
    gone = ["PRESS", "unknown"]
    assert change(client, list_id, member_address, remove_tags=gone) == ["a fair", "VIP"]
    assert change(client, list_id, member_address, name="Ada") == ["a fair", "VIP"]
    assert members(client, list_id, email=member_address)[0]["tags"] == ["a fair", "VIP"]
    assert change(
        client, list_id, member_address, tags=["x"], add_tags=["y"], remove_tags=["X"]
    ) == ["y"]
    assert change(client, list_id, member_address, tags=[]) == []
    # A tag that was to be removed is not made.
    assert set(tag_names(client, list_id)) == {"VIP", "press", "a fair", "x", "y"}


def test_tag_keeps_its_first_spelling_regardless_of_case(
    client: httpx2.Client, list_id: int, member_address: str
) -> None:
    assert change(client, list_id, member_address, tags=[" Straße ", "STRASSE"]) == ["Straße"]
    assert change(client, list_id, member_address, add_tags=["strasse"]) == ["Straße"]
    assert tag_names(client, list_id) == ["Straße"]


def test_malformed_tags_are_rejected(
    client: httpx2.Client, list_id: int, member_address: str
) -> None:
    for wrong in ["", " ", "a,b", "x" * 41, "a\nb", "a\0b", 5, None]:
        for name in ("tags", "add_tags", "remove_tags"):
            body = {name: ["fine", wrong]}
            reply = client.patch(f"/lists/{list_id}/members/{member_address}", json=body)
            error = problem(reply, 422, "body.invalid")
            assert error["errors"][0]["field"] == f"body.{name}[1]"
        assert tag_names(client, list_id) == []


def test_member_has_at_most_100_tags(
    client: httpx2.Client, list_id: int, member_address: str
) -> None:
    path = f"/lists/{list_id}/members/{member_address}"
    many = [f"tag {number}" for number in range(100)]
    assert len(change(client, list_id, member_address, tags=many)) == 100
    problem(client.patch(path, json={"add_tags": ["more"]}), 422, "tag.too_many_of_member")
    problem(client.patch(path, json={"tags": [*many, "more"]}), 422, "body.invalid")
    assert "more" not in tag_names(client, list_id)
    assert len(change(client, list_id, member_address, add_tags=["TAG 7"])) == 100


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
    assert change(client, list_id, member_address, tags=["one", "T9999"]) == ["one", "t9999"]
    problem(client.patch(path, json={"tags": ["two"]}), 409, "tag.too_many")


def test_renamed_tag_changes_for_all_members_without_rewriting_them(
    stack: Stack, client: httpx2.Client, list_id: int, member_address: str
) -> None:
    change(client, list_id, member_address, tags=["VIP", "press"])
    rows = "SELECT xmin, ctid, * FROM subscriptions WHERE list_id = %s"
    before = stack.query(rows, list_id)
    path = f"/lists/{list_id}/tags/{tag_id(client, list_id, 'VIP')}"
    assert data(client.patch(path, json={"name": "Patrons"}))["name"] == "Patrons"
    assert members(client, list_id, email=member_address)[0]["tags"] == ["Patrons", "press"]
    problem(client.patch(path, json={"name": "PRESS"}), 409, "tag.name_taken")
    assert data(client.patch(path, json={"name": "patrons"}))["name"] == "patrons"
    assert stack.query(rows, list_id) == before


def test_deleted_tag_is_removed_from_all_members_and_not_restored_by_a_new_tag(
    client: httpx2.Client, list_id: int, member_address: str
) -> None:
    other = new_address()
    put(client, list_id, other, tags=["VIP"])
    change(client, list_id, member_address, tags=["VIP", "press"])
    path = f"/lists/{list_id}/tags/{tag_id(client, list_id, 'VIP')}"
    assert data(client.delete(path)) == 1
    problem(client.delete(path), 404, "tag.not_found")
    assert tag_names(client, list_id) == ["press"]
    assert change(client, list_id, member_address, add_tags=["vip"]) == ["press", "vip"]
    assert members(client, list_id, email=other)[0]["tags"] == []


def test_concurrent_tagging_creates_each_tag_only_once(client: httpx2.Client, list_id: int) -> None:
    names = [f"tag {number}" for number in range(20)]
    people = [new_address() for _ in range(6)]
    for each in people:
        put(client, list_id, each)

    def tag(place: int) -> list[str]:
        # Each in another order and spelling.
        mixed = [*names[place:], *names[:place]]
        spelt = [each.upper() if place % 2 else each for each in mixed]
        return change(client, list_id, people[place], tags=spelt)

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(tag, range(6)))
    assert len(tag_names(client, list_id)) == len(names)
    assert found == [found[0]] * 6


def test_tag_is_accessible_only_through_its_own_list_and_owner(
    client: httpx2.Client, other_owner: httpx2.Client, list_id: int, member_address: str
) -> None:
    change(client, list_id, member_address, tags=["VIP"])
    own = tag_id(client, list_id, "VIP")
    other = new_list(client)["id"]
    theirs = new_list(other_owner)["id"]
    for caller, lists in ((client, [other]), (other_owner, [theirs])):
        for each in lists:
            path = f"/lists/{each}/tags/{own}"
            problem(caller.patch(path, json={"name": "x"}), 404, "tag.not_found")
            problem(caller.delete(path), 404, "tag.not_found")
            assert tag_names(caller, each) == []
    problem(other_owner.get(f"/lists/{list_id}/tags"), 403, "list.not_owner")
    problem(other_owner.delete(f"/lists/{list_id}/tags/{own}"), 403, "list.not_owner")
    assert tag_names(client, list_id) == ["VIP"]
