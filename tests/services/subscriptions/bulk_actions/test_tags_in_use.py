"""A tag can't be deleted while a bulk action or an export that uses the tag is unfinished."""

import threading
from typing import Any

import pytest

from core.errors import DomainError
from devstack.harness.polling import eventually
from models import BulkActionKind, FieldType, SubscriptionStatus
from services.subscriptions import exports, fields, lists, segments, tags
from services.subscriptions.bulk_actions import batches as batches_module
from services.subscriptions.export_sheets import ExportKind
from services.subscriptions.filters import member_filter
from tests.support.lists.bulk_actions import BulkActions

VIP = {"field": "tag", "is": "vip"}
IN_ROME = {"field": "fields.town", "is": "Rome"}
OTHERS_IN_ROME = {"all": [{"not": VIP}, IN_ROME]}


def tag_members(bulk: BulkActions, emails: list[str], tag: str, town_id: int | None = None) -> int:
    """Tag these members and return the tag's id. Optionally set the town of all members."""
    with bulk.resources.unit_of_work() as uow:
        tag_id = tags.find_tag_ids(uow, bulk.list_id, [tag], create=True)[tag]
    bulk.stack.query(
        "UPDATE subscriptions SET tag_ids = array_append(tag_ids, %s) WHERE list_id = %s"
        " AND email = ANY(%s)",
        *(tag_id, bulk.list_id, emails),
    )
    if town_id is not None:
        bulk.stack.query(
            "UPDATE subscriptions SET fields = jsonb_build_object(%s::text, 'Rome')"
            " WHERE list_id = %s",
            *(town_id, bulk.list_id),
        )
    return tag_id


def create_town_field(bulk: BulkActions) -> int:
    with bulk.resources.unit_of_work() as uow:
        field = fields.create_field(
            uow, bulk.owner.account_id, type=FieldType.TEXT, key="town", label="Town"
        )
        return field.id


def rename_tag(bulk: BulkActions, tag_id: int, name: str) -> None:
    with bulk.resources.unit_of_work() as uow:
        tags.rename_tag(uow, bulk.list_id, tag_id, name)


def delete_tag(bulk: BulkActions, tag_id: int) -> None:
    with bulk.resources.unit_of_work() as uow:
        tags.delete_tag(uow, bulk.list_id, tag_id)


def list_tag_uses(bulk: BulkActions, tag_id: int) -> list[dict[str, Any]]:
    with pytest.raises(DomainError) as error:
        delete_tag(bulk, tag_id)
    assert error.value.code == "tag.in_use"
    uses: list[dict[str, Any]] = error.value.facts["used_by"]
    return uses


def list_tagged_members(bulk: BulkActions, tag_id: int) -> list[str]:
    rows = bulk.stack.query(
        "SELECT email FROM subscriptions WHERE list_id = %s AND %s = ANY(tag_ids) ORDER BY id",
        *(bulk.list_id, tag_id),
    )
    return [str(email) for (email,) in rows]


def begin_bulk_action_on_segment(
    bulk: BulkActions, criteria: Any, action: BulkActionKind, value: str
) -> tuple[int, int]:
    """Create a segment, and begin a bulk action on its members.

    Return the id of the segment, and the id of the bulk action's job.
    """
    with bulk.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, bulk.list_id)
        segment_id = segments.create_segment(uow, mailing_list, "A segment", criteria).id
    with bulk.resources.unit_of_work() as uow:
        stored_filter = segments.choose_filter(
            uow, lists.get_list(uow, bulk.list_id), segment_id, None
        )
        [restored_filter] = member_filter.restore_names(
            uow, lists.get_list(uow, bulk.list_id), stored_filter or {}
        )
    return segment_id, bulk.begin(action, value, restored_filter)


@pytest.mark.parametrize("batches_before", [0, 1])
def test_bulk_action_keeps_its_filter_and_tags_when_they_are_renamed_or_deleted_meanwhile(
    bulk_actions: BulkActions, monkeypatch: pytest.MonkeyPatch, batches_before: int
) -> None:
    monkeypatch.setattr(batches_module, "MAX_BATCH_MEMBERS", 3)
    town_id = create_town_field(bulk_actions)
    members = bulk_actions.add(8)
    vip_id = tag_members(bulk_actions, members[:5], "vip", town_id)
    segment_id, job_id = begin_bulk_action_on_segment(
        bulk_actions, OTHERS_IN_ROME, BulkActionKind.TAG, "greeted"
    )
    for _ in range(batches_before):
        bulk_actions.take_turn(job_id)
    with bulk_actions.resources.unit_of_work() as uow:
        greeted_id = tags.find_tag_ids(uow, bulk_actions.list_id, ["greeted"], create=False)[
            "greeted"
        ]
    # None of these changes may affect the bulk action: rename its tags, give an old name to a new
    # tag, replace its field, and change and delete its segment.
    rename_tag(bulk_actions, vip_id, "patron")
    rename_tag(bulk_actions, greeted_id, "welcomed")
    tag_members(bulk_actions, members[5:], "vip")
    with bulk_actions.resources.unit_of_work() as uow:
        fields.retire_field(uow, bulk_actions.owner.account_id, town_id)
    create_town_field(bulk_actions)
    with bulk_actions.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, bulk_actions.list_id)
        segments.change_segment(uow, mailing_list, segment_id, {"filter": VIP})
        segments.delete_segment(uow, mailing_list, segment_id)
    for tag_id in (vip_id, greeted_id):
        [use] = list_tag_uses(bulk_actions, tag_id)
        assert (use["kind"], use["name"]) == ("bulk_action", "tag")
    result = bulk_actions.importing.work(job_id).result or {}
    assert (result.get("matched"), result.get("changed")) == (3, 3)
    assert list_tagged_members(bulk_actions, greeted_id) == members[5:]
    # A finished bulk action doesn't prevent the deletion of its tags.
    delete_tag(bulk_actions, vip_id)
    delete_tag(bulk_actions, greeted_id)


def test_failed_bulk_action_is_not_resumed_after_its_tags_were_deleted(
    bulk_actions: BulkActions,
) -> None:
    members = bulk_actions.add(2)
    vip_id = tag_members(bulk_actions, members[:1], "vip")
    filter_job_id = bulk_actions.begin(BulkActionKind.REMOVE, written={"not": VIP})
    tag_job_id = bulk_actions.begin(BulkActionKind.TAG, "greeted")
    bulk_actions.stack.query(
        "UPDATE bulk_actions SET status = 'failed', finished_at = now() WHERE list_id = %s",
        bulk_actions.list_id,
    )
    with bulk_actions.resources.unit_of_work() as uow:
        greeted_id = tags.find_tag_ids(uow, bulk_actions.list_id, ["greeted"], create=False)[
            "greeted"
        ]
    delete_tag(bulk_actions, vip_id)
    delete_tag(bulk_actions, greeted_id)
    for job_id, code in ((filter_job_id, "segment.tag_deleted"), (tag_job_id, "tag.not_found")):
        job = bulk_actions.importing.work(job_id)
        assert (job.status, (job.error or {})["code"]) == ("failed", code)
    assert bulk_actions.statuses() == [SubscriptionStatus.ACTIVE] * 2


def test_tag_used_by_an_unfinished_export_is_not_deletable(bulk_actions: BulkActions) -> None:
    vip_id = tag_members(bulk_actions, bulk_actions.add(1), "vip")
    with bulk_actions.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, bulk_actions.list_id)
        stored_filter = member_filter.prepare_stored_filter(
            uow, mailing_list, {"field": "tag", "in": ["other", "VIP"]}
        )
        exports.enqueue_export(
            uow,
            bulk_actions.owner.account_id,
            mailing_list,
            ExportKind.MEMBERS,
            filter=stored_filter,
        )
    [use] = list_tag_uses(bulk_actions, vip_id)
    assert (use["kind"], use["name"]) == ("export", "members")
    bulk_actions.stack.query(
        "UPDATE exports SET finished_at = now() WHERE list_id = %s", bulk_actions.list_id
    )
    delete_tag(bulk_actions, vip_id)
    # The filter still shows the deleted tag, under a name that no tag of the list can have.
    with bulk_actions.resources.unit_of_work() as uow:
        [restored_filter] = member_filter.restore_names(
            uow, lists.get_list(uow, bulk_actions.list_id), stored_filter
        )
    assert restored_filter == {"field": "tag", "in": ["other", f"deleted tag {vip_id}"]}


def test_tag_is_not_deletable_while_a_concurrent_transaction_starts_using_it(
    bulk_actions: BulkActions,
) -> None:
    vip_id = tag_members(bulk_actions, bulk_actions.add(1), "vip")
    with bulk_actions.resources.unit_of_work() as uow:
        segments.create_segment(
            uow, lists.get_list(uow, bulk_actions.list_id), "VIPs", {"any": [VIP]}
        )
        with pytest.raises(DomainError) as error:
            delete_tag(bulk_actions, vip_id)
        assert error.value.code == "list.busy"
    [use] = list_tag_uses(bulk_actions, vip_id)
    assert (use["kind"], use["name"]) == ("segment", "VIPs")


def test_segment_created_during_deletion_of_its_tag_uses_a_new_tag(
    bulk_actions: BulkActions,
) -> None:
    vip_id = tag_members(bulk_actions, bulk_actions.add(1), "vip")
    used_tag_ids: list[int] = []

    def create_vip_segment() -> None:
        with bulk_actions.resources.unit_of_work() as uow:
            segment_filter = segments.create_segment(
                uow, lists.get_list(uow, bulk_actions.list_id), "VIPs", VIP
            ).filter
            used_tag_ids.append(segment_filter["is"])

    thread = threading.Thread(target=create_vip_segment)
    with bulk_actions.resources.unit_of_work() as uow:
        tags.delete_tag(uow, bulk_actions.list_id, vip_id)
        thread.start()
        query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        eventually(lambda: bool(bulk_actions.stack.query(query)), what="a transaction that waits")
    thread.join(10)
    # The segment uses a new tag with the name of the deleted tag.
    [tag_id] = used_tag_ids
    assert tag_id != vip_id
    assert list_tagged_members(bulk_actions, tag_id) == []
