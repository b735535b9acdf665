import pytest

from devstack.harness.stack import Stack
from services.subscriptions import deleted_tags, tags
from services.subscriptions.members import locks
from tests.support.imports.importing import ImportRunner
from tests.support.lists.subscribers import insert_members

MEMBER_COUNT = 12


@pytest.fixture
def tagged_list_id(empty_stack: Stack) -> int:
    list_id = ImportRunner(empty_stack).new_list(empty_stack.create_owner())
    insert_members(
        empty_stack, list_id, [f"{number}.{list_id}@example.com" for number in range(MEMBER_COUNT)]
    )
    return list_id


@pytest.fixture
def tag_ids(empty_stack: Stack, tagged_list_id: int) -> list[int]:
    """The ids of three tags, which all members of the list ``tagged_list_id`` have."""
    with empty_stack.resources.unit_of_work() as uow:
        ids_by_name = tags.find_tag_ids(uow, tagged_list_id, ["a", "b", "c"], create=True)
    ids = sorted(ids_by_name.values())
    empty_stack.query(
        "UPDATE subscriptions SET tag_ids = %s WHERE list_id = %s", ids, tagged_list_id
    )
    return ids


def read_records(empty_stack: Stack, list_id: int) -> list[tuple[object, ...]]:
    query = "SELECT updated_at, tag_ids FROM subscriptions WHERE list_id = %s ORDER BY id"
    return empty_stack.query(query, list_id)


def test_deleted_tags_are_removed_from_members_in_batches_without_other_changes(
    empty_stack: Stack, tagged_list_id: int, tag_ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleted_tags, "MAX_BATCH_MEMBERS", 5)
    first, second, third = tag_ids
    before = read_records(empty_stack, tagged_list_id)
    assert deleted_tags.remove_deleted_tags(empty_stack.resources) == 0
    with empty_stack.resources.unit_of_work() as uow:
        for tag_id in (first, third):
            tags.delete_tag(uow, tagged_list_id, tag_id)
    assert deleted_tags.remove_deleted_tags(empty_stack.resources) == MEMBER_COUNT
    assert read_records(empty_stack, tagged_list_id) == [
        (updated_at, [second]) for updated_at, _ in before
    ]
    # Add the deleted tag to the members again, as an import does if it looked up the tag before the
    # tag was deleted.
    empty_stack.query("UPDATE subscriptions SET tag_ids = tag_ids || %s::bigint", third)
    assert deleted_tags.remove_deleted_tags(empty_stack.resources) == MEMBER_COUNT
    assert read_records(empty_stack, tagged_list_id) == [
        (updated_at, [second]) for updated_at, _ in before
    ]
    empty_stack.query("UPDATE deleted_tags SET created_at = now() - interval '61 minutes'")
    assert deleted_tags.remove_deleted_tags(empty_stack.resources) == 0
    assert empty_stack.query("SELECT * FROM deleted_tags") == []


def test_removal_of_deleted_tags_skips_a_locked_list_until_the_next_run(
    empty_stack: Stack, tagged_list_id: int, tag_ids: list[int]
) -> None:
    with empty_stack.resources.unit_of_work() as uow:
        tags.delete_tag(uow, tagged_list_id, tag_ids[0])
    with empty_stack.resources.unit_of_work() as uow:
        locks.lock_list(uow, tagged_list_id)
        assert deleted_tags.remove_deleted_tags(empty_stack.resources) == 0
    assert deleted_tags.remove_deleted_tags(empty_stack.resources) == MEMBER_COUNT
