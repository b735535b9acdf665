"""Tests of changes of watched segments that cause no events, such as imports."""

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.imports.bulk import add, build_address_file, import_members_file
from tests.support.lists.segments import VIP, set_member
from tests.support.lists.subscribers import new_address
from tests.support.lists.watched_segments import Watch, put_member, tag, watch_segment


def test_members_at_the_start_cause_no_events_and_count_as_their_first_entry(
    client: httpx2.Client, stack: Stack, list_id: int
) -> None:
    email = new_address()
    data(client.put(f"/lists/{list_id}/members/{email}", json={"tags": ["vip"]}))
    segment = watch_segment(stack, client, list_id)
    assert segment.read_watch()["members"] == 1
    assert (segment.list_events(), segment.list_changes()) == ([], [])
    tag(segment, email, has_tag=False)
    segment.compare()
    tag(segment, email)
    segment.compare()
    assert segment.list_happenings() == [("left", 1), ("entered", 2)]


def test_changed_filter_causes_no_events(watch: Watch) -> None:
    segment = watch()
    put_member(segment, tags=["vip"])
    gold = put_member(segment, tags=["gold"])
    segment.compare()
    segment.change(filter={"field": "tag", "is": "gold"})
    segment.compare()
    assert segment.list_happenings() == [("entered", 1)]
    tag_of_gold = {"remove_tags": ["gold"]}
    set_member(segment.client, segment.list_id, gold, **tag_of_gold)
    segment.compare()
    assert segment.list_happenings() == [("entered", 1), ("left", 1)]
    segment.change(name="Renamed")
    put_member(segment, tags=["gold"])
    segment.compare()
    assert segment.list_events(3)[-1]["data"]["segment"] == "Renamed"


@pytest.mark.parametrize("imports", [False, True])
def test_imported_members_cause_events_only_if_the_owner_wants_them(
    watch: Watch, imports: bool
) -> None:
    segment = watch({"field": "email", "exists": True}, imports=imports)
    added, signed_up = new_address(), new_address()
    data(add(segment.client, segment.list_id, added))
    import_members_file(segment.client, segment.list_id, build_address_file(new_address()))
    put_member(segment, signed_up)
    segment.compare()
    assert segment.read_watch()["members"] == 3
    addresses = {each["data"]["email"] for each in segment.list_events(3 if imports else 1)}
    assert signed_up in addresses
    assert (added in addresses) is imports
    assert len(segment.list_changes()) == len(addresses)


def test_import_that_changes_a_member_and_its_undo_cause_no_events(watch: Watch) -> None:
    segment = watch()
    email = put_member(segment)
    file = f"email,tags\n{email},vip\n".encode()
    result = import_members_file(segment.client, segment.list_id, file)
    segment.compare()
    assert (segment.read_watch()["members"], segment.list_events()) == (1, [])
    segment.change(filter={"not": VIP})
    segment.compare()
    assert segment.read_watch()["members"] == 0
    data(segment.client.delete(f"/imports/{result['import_id']}/members"))
    segment.compare()
    assert (segment.read_watch()["members"], segment.list_events()) == (1, [])


def test_comparison_after_an_import_is_normal_again(watch: Watch) -> None:
    segment = watch()
    email = new_address()
    data(add(segment.client, segment.list_id, email))
    segment.compare()
    tag(segment, email)
    segment.compare()
    assert segment.list_happenings() == [("entered", 1)]


def test_undo_of_an_import_is_an_exit_of_its_members(watch: Watch) -> None:
    segment = watch({"field": "email", "exists": True}, imports=True)
    result = import_members_file(segment.client, segment.list_id, build_address_file(new_address()))
    segment.compare()
    data(segment.client.delete(f"/imports/{result['import_id']}/members"))
    segment.compare()
    _, left = segment.list_events(2)
    assert (left["subject"], left["data"]["status"]) == (None, "removed")


def test_comparison_waits_at_most_an_hour_for_an_import(stack: Stack, watch: Watch) -> None:
    segment = watch()
    put_member(segment, tags=["vip"])
    stack.query(
        "INSERT INTO imports (list_id, user_id, source, object_prefix, size)"
        " SELECT id, user_id, 'file', 'imports/' || gen_random_uuid(), 1 FROM lists WHERE id = %s",
        segment.list_id,
    )
    segment.compare()
    assert segment.list_events() == []
    stack.query("UPDATE imports SET dry_run = true WHERE list_id = %s", segment.list_id)
    segment.compare()
    assert segment.list_happenings() == [("entered", 1)]
    stack.query("UPDATE imports SET dry_run = false WHERE list_id = %s", segment.list_id)
    put_member(segment, tags=["vip"])
    segment.change(watch={})
    segment.compare_after(minutes=59)
    assert len(segment.list_events()) == 1
    segment.compare_after(minutes=61)
    assert len(segment.list_events()) == 2


def test_undo_of_an_import_is_silent_for_members_who_changed_since(watch: Watch) -> None:
    segment = watch()
    email = put_member(segment, tags=["vip"])
    segment.compare()
    file = f"email,tags\n{email},gold\n".encode()
    result = import_members_file(segment.client, segment.list_id, file)
    segment.change(filter={"not": {"field": "tag", "is": "gold"}})
    segment.compare()
    put_member(segment, email, name="Changed")
    data(segment.client.delete(f"/imports/{result['import_id']}/members"))
    segment.compare()
    assert segment.read_watch()["members"] == 1
    assert segment.list_happenings() == [("entered", 1)]
