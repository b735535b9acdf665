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


def give(bulk: BulkActions, emails: list[str], tag: str, town_id: int | None = None) -> int:
    """Tag these members, and set their field; the tag's id."""
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


def new_town(bulk: BulkActions) -> int:
    with bulk.resources.unit_of_work() as uow:
        made = fields.create_field(
            uow, bulk.owner.user_id, type=FieldType.TEXT, key="town", label="Town"
        )
        return made.id


def rename(bulk: BulkActions, tag_id: int, name: str) -> None:
    with bulk.resources.unit_of_work() as uow:
        tags.rename_tag(uow, bulk.list_id, tag_id, name)


def delete(bulk: BulkActions, tag_id: int) -> None:
    with bulk.resources.unit_of_work() as uow:
        tags.delete_tag(uow, bulk.list_id, tag_id)


def uses_of(bulk: BulkActions, tag_id: int) -> list[dict[str, Any]]:
    with pytest.raises(DomainError) as caught:
        delete(bulk, tag_id)
    assert caught.value.code == "tag.in_use"
    found: list[dict[str, Any]] = caught.value.facts["used_by"]
    return found


def tagged(bulk: BulkActions, tag_id: int) -> list[str]:
    rows = bulk.stack.query(
        "SELECT email FROM subscriptions WHERE list_id = %s AND %s = ANY(tag_ids) ORDER BY id",
        *(bulk.list_id, tag_id),
    )
    return [str(email) for (email,) in rows]


def begin_segment(
    bulk: BulkActions, written: Any, action: BulkActionKind, value: str
) -> tuple[int, int]:
    """A new segment, and the job of a bulk action on its members."""
    with bulk.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, bulk.list_id)
        segment_id = segments.create_segment(uow, mailing_list, "A segment", written).id
    with bulk.resources.unit_of_work() as uow:
        kept = segments.choose_filter(uow, lists.get_list(uow, bulk.list_id), segment_id, None)
        [shown] = member_filter.restore_names(uow, lists.get_list(uow, bulk.list_id), kept or {})
    return segment_id, bulk.begin(action, value, shown)


@pytest.mark.parametrize("batches_before", [0, 1])
def test_bulk_action_keeps_its_filter_and_tags_when_they_are_renamed_or_deleted_meanwhile(
    bulk_actions: BulkActions, monkeypatch: pytest.MonkeyPatch, batches_before: int
) -> None:
    monkeypatch.setattr(batches_module, "MAX_BATCH_MEMBERS", 3)
    town = new_town(bulk_actions)
    members = bulk_actions.add(8)
    vip = give(bulk_actions, members[:5], "vip", town)
    segment_id, job_id = begin_segment(bulk_actions, OTHERS_IN_ROME, BulkActionKind.TAG, "greeted")
    for _ in range(batches_before):
        bulk_actions.take_turn(job_id)
    with bulk_actions.resources.unit_of_work() as uow:
        greeted = tags.find_tag_ids(uow, bulk_actions.list_id, ["greeted"], create=False)["greeted"]
    # The names go to others, the field is retired, and the segment means others before it goes.
    rename(bulk_actions, vip, "patron")
    rename(bulk_actions, greeted, "welcomed")
    give(bulk_actions, members[5:], "vip")
    with bulk_actions.resources.unit_of_work() as uow:
        fields.retire_field(uow, bulk_actions.owner.user_id, town)
    new_town(bulk_actions)
    with bulk_actions.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, bulk_actions.list_id)
        segments.change_segment(uow, mailing_list, segment_id, {"filter": VIP})
        segments.delete_segment(uow, mailing_list, segment_id)
    for tag_id in (vip, greeted):
        [use] = uses_of(bulk_actions, tag_id)
        assert (use["kind"], use["name"]) == ("bulk_action", "tag")
    result = bulk_actions.importing.work(job_id).result or {}
    assert (result.get("matched"), result.get("changed")) == (3, 3)
    assert tagged(bulk_actions, greeted) == members[5:]
    # What has ended stands in nobody's way.
    delete(bulk_actions, vip)
    delete(bulk_actions, greeted)


def test_failed_bulk_action_is_not_resumed_after_its_tags_were_deleted(
    bulk_actions: BulkActions,
) -> None:
    members = bulk_actions.add(2)
    vip = give(bulk_actions, members[:1], "vip")
    by_filter = bulk_actions.begin(BulkActionKind.REMOVE, written={"not": VIP})
    by_value = bulk_actions.begin(BulkActionKind.TAG, "greeted")
    bulk_actions.stack.query(
        "UPDATE bulk_actions SET status = 'failed', finished_at = now() WHERE list_id = %s",
        bulk_actions.list_id,
    )
    with bulk_actions.resources.unit_of_work() as uow:
        greeted = tags.find_tag_ids(uow, bulk_actions.list_id, ["greeted"], create=False)["greeted"]
    delete(bulk_actions, vip)
    delete(bulk_actions, greeted)
    for job_id, code in ((by_filter, "segment.tag_deleted"), (by_value, "tag.not_found")):
        job = bulk_actions.importing.work(job_id)
        assert (job.status, (job.error or {})["code"]) == ("failed", code)
    assert bulk_actions.statuses() == [SubscriptionStatus.ACTIVE] * 2


def test_tag_used_by_an_unfinished_export_is_not_deletable(bulk_actions: BulkActions) -> None:
    vip = give(bulk_actions, bulk_actions.add(1), "vip")
    with bulk_actions.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, bulk_actions.list_id)
        kept = member_filter.prepare_stored_filter(
            uow, mailing_list, {"field": "tag", "in": ["other", "VIP"]}
        )
        exports.enqueue_export(
            uow, bulk_actions.owner.user_id, mailing_list, ExportKind.MEMBERS, filter=kept
        )
    [use] = uses_of(bulk_actions, vip)
    assert (use["kind"], use["name"]) == ("export", "members")
    bulk_actions.stack.query(
        "UPDATE exports SET finished_at = now() WHERE list_id = %s", bulk_actions.list_id
    )
    delete(bulk_actions, vip)
    # It is still shown, under no name that the list could have.
    with bulk_actions.resources.unit_of_work() as uow:
        [shown] = member_filter.restore_names(uow, lists.get_list(uow, bulk_actions.list_id), kept)
    assert shown == {"field": "tag", "in": ["other", f"deleted tag {vip}"]}


def test_tag_is_not_deletable_while_a_concurrent_transaction_starts_using_it(
    bulk_actions: BulkActions,
) -> None:
    vip = give(bulk_actions, bulk_actions.add(1), "vip")
    with bulk_actions.resources.unit_of_work() as uow:
        segments.create_segment(
            uow, lists.get_list(uow, bulk_actions.list_id), "VIPs", {"any": [VIP]}
        )
        with pytest.raises(DomainError) as caught:
            delete(bulk_actions, vip)
        assert caught.value.code == "list.busy"
    [use] = uses_of(bulk_actions, vip)
    assert (use["kind"], use["name"]) == ("segment", "VIPs")


def test_segment_created_during_deletion_of_its_tag_uses_a_new_tag(
    bulk_actions: BulkActions,
) -> None:
    vip = give(bulk_actions, bulk_actions.add(1), "vip")
    made: list[int] = []

    def make() -> None:
        with bulk_actions.resources.unit_of_work() as uow:
            kept = segments.create_segment(
                uow, lists.get_list(uow, bulk_actions.list_id), "VIPs", VIP
            ).filter
            made.append(kept["is"])

    maker = threading.Thread(target=make)
    with bulk_actions.resources.unit_of_work() as uow:
        tags.delete_tag(uow, bulk_actions.list_id, vip)
        maker.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        eventually(lambda: bool(bulk_actions.stack.query(waiting)), what="a transaction that waits")
    maker.join(10)
    # It is another tag of that name.
    [tag_id] = made
    assert tag_id != vip
    assert tagged(bulk_actions, tag_id) == []
