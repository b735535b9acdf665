from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import select

from core.errors import DomainError
from core.settings.notations import PlanQuota
from models import BulkAction, BulkActionKind, OptOutKind, Subscription
from services.jobs.lease import Lease
from services.jobs.transitions import cancel_job, hand_back_job
from services.subscriptions import tags
from services.subscriptions.bulk_actions import actions
from services.subscriptions.bulk_actions import batches as batches_module
from services.subscriptions.bulk_actions.undo import BULK_UNDO
from services.subscriptions.members import opt_out_checks, opt_outs
from services.subscriptions.members.changes import Actor, ActorKind, Via
from tests.support.lists.bulk_actions import BulkActions

IN_ANY_STATUS = {"field": "status", "in": ["pending", "active", "unsubscribed", "removed"]}

OWNER = Actor(ActorKind.OWNER, Via.LOGIN)


@pytest.fixture(autouse=True)
def _limit_batches_to_three_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "MAX_BATCH_MEMBERS", 3)


class Killed(BaseException):
    """Simulates a killed worker. ``except Exception`` doesn't catch ``Killed``."""


def die(*_: object, **__: object) -> None:
    raise Killed


@pytest.mark.parametrize("is_undo", [False, True])
def test_bulk_action_or_undo_resumes_where_its_worker_died(
    bulk_actions: BulkActions, monkeypatch: pytest.MonkeyPatch, is_undo: bool
) -> None:
    bulk_actions.add(8)
    if is_undo:
        job_id = bulk_actions.begin_undo(bulk_actions.do(BulkActionKind.REMOVE)["bulk_id"])
    else:
        job_id = bulk_actions.begin(BulkActionKind.REMOVE)
    run = BULK_UNDO.run if is_undo else actions.change_members
    module = "undo" if is_undo else "bulk_actions.actions"
    expected = "active" if is_undo else "removed"
    # The worker dies four times: in the middle of the first batch, and after each of the three
    # batches.
    for changed_count in (0, 3, 6, 8):
        lease = bulk_actions.importing.lease(job_id)
        with monkeypatch.context() as patch:
            if changed_count:
                patch.setattr(Lease, "check_cancelled", die_at_second_check())
            else:
                patch.setattr(f"services.subscriptions.{module}.record_progress", die)
            with pytest.raises(Killed):
                run(bulk_actions.resources, lease)
        assert bulk_actions.statuses().count(expected) == changed_count
        with bulk_actions.resources.unit_of_work() as uow:
            hand_back_job(uow, lease)
    job = bulk_actions.importing.work(job_id)
    assert job.status == "succeeded"
    assert job.result is not None
    assert job.result["undone" if is_undo else "changed"] == 8
    assert set(Counter(bulk_actions.events()).values()) == {1}


def die_at_second_check() -> Callable[[Lease], None]:
    """Return a replacement for ``check_cancelled`` that kills the worker at its second call."""
    checks: list[Lease] = []

    def check(lease: Lease) -> None:
        if checks:
            raise Killed
        checks.append(lease)

    return check


def test_bulk_action_changes_each_member_exactly_once_despite_status_changes(
    bulk_actions: BulkActions,
) -> None:
    addresses = bulk_actions.add(7)
    for address in addresses[:2]:
        bulk_actions.importing.remove(bulk_actions.list_id, address)
    result = bulk_actions.do(BulkActionKind.REMOVE, written=IN_ANY_STATUS)
    assert (result["matched"], result["changed"]) == (7, 5)
    assert bulk_actions.statuses() == ["removed"] * 7
    assert bulk_actions.undo(result["bulk_id"])["undone"] == 5
    assert Counter(bulk_actions.statuses()) == {"active": 5, "removed": 2}


def test_member_who_opts_out_while_the_list_is_locked_is_excluded_from_bulk_action(
    bulk_actions: BulkActions,
) -> None:
    """The opt-out is already stored, but the status of the pending subscription isn't updated yet.

    The bulk action must not change the subscription. Otherwise the subscription's ``updated_at``
    would be later than the opt-out, so Pressroom would mistake the subscription for a new sign-up.
    """
    ada = bulk_actions.add(2)[0]
    with bulk_actions.importing.person(bulk_actions.list_id, ada) as (uow, _, person):
        uow.session.query(Subscription).filter_by(user_id=person.id).update({"status": "pending"})
    with bulk_actions.resources.unit_of_work() as uow:
        kind = OptOutKind.LIST
        opt_outs.renew_opt_out(uow, bulk_actions.list_id, person, kind=kind, source=Via.TRACE)
    result = bulk_actions.do(BulkActionKind.TAG, "vip", IN_ANY_STATUS)
    assert (result["matched"], result["changed"]) == (1, 1)
    with bulk_actions.resources.unit_of_work() as uow:
        subscription = uow.session.query(Subscription).filter_by(user_id=person.id).one()
        assert opt_out_checks.find_opt_out_changes(uow, subscription)["status"] == "unsubscribed"


def test_bulk_tagging_adds_no_tag_beyond_100_to_a_member(bulk_actions: BulkActions) -> None:
    bulk_actions.add(2)
    names = [f"tag {number}" for number in range(100)]
    with bulk_actions.resources.unit_of_work() as uow:
        ids = tags.find_tag_ids(uow, bulk_actions.list_id, names, create=True)
    bulk_actions.stack.query(
        "UPDATE subscriptions SET tag_ids = (SELECT array_agg(id ORDER BY id) FROM tags"
        " WHERE list_id = %s) WHERE id = (SELECT min(id) FROM subscriptions WHERE list_id = %s)",
        *(bulk_actions.list_id, bulk_actions.list_id),
    )

    def tag(name: str) -> tuple[int, int]:
        result = bulk_actions.do(BulkActionKind.TAG, name)
        return result["matched"], result["changed"]

    def delete(name: str) -> None:
        with bulk_actions.resources.unit_of_work() as uow:
            tags.delete_tag(uow, bulk_actions.list_id, ids[name])

    assert tag("vip") == (2, 1)
    # A member can have at most 100 tags, and a deleted tag doesn't count. After the deletion of a
    # tag, both a bulk action and an undo can therefore add another tag.
    delete("tag 0")
    assert tag("vip") == (2, 1)
    assert tag("other") == (2, 1)
    untag_id = bulk_actions.do(BulkActionKind.UNTAG, "tag 1")["bulk_id"]
    assert tag("other") == (2, 1)
    delete("tag 2")
    assert bulk_actions.undo(untag_id)["undone"] == 1


def test_bulk_actions_undone_in_their_original_order_each_revert_only_their_own_changes(
    bulk_actions: BulkActions,
) -> None:
    bulk_actions.add(4)
    query = "SELECT status, email_enabled, tag_ids FROM subscriptions WHERE list_id = %s"
    before = bulk_actions.stack.query(query, bulk_actions.list_id)
    email_off_id = bulk_actions.do(BulkActionKind.EMAIL_OFF)["bulk_id"]
    tag_id = bulk_actions.do(BulkActionKind.TAG, "vip")["bulk_id"]
    removal_id = bulk_actions.do(BulkActionKind.REMOVE)["bulk_id"]
    for bulk_id in (email_off_id, tag_id, removal_id):
        assert bulk_actions.undo(bulk_id)["undone"] == 4
    assert bulk_actions.stack.query(query, bulk_actions.list_id) == before


def test_two_tier_changes_undone_in_their_original_order_restore_the_initial_tier(
    bulk_actions: BulkActions,
) -> None:
    bulk_actions.add(4)
    query = "SELECT type, paid_expiry FROM subscriptions WHERE list_id = %s"
    before = bulk_actions.stack.query(query, bulk_actions.list_id)
    silver = bulk_actions.do(BulkActionKind.SET_TYPE, "silver")["bulk_id"]
    gold = bulk_actions.do(BulkActionKind.SET_TYPE, "gold")["bulk_id"]
    assert bulk_actions.undo(silver) == {"bulk_id": silver, "undone": 0, "kept": 4}
    assert bulk_actions.undo(gold) == {"bulk_id": gold, "undone": 4, "kept": 0}
    assert bulk_actions.stack.query(query, bulk_actions.list_id) == before


def test_cancelled_bulk_action_keeps_its_partial_changes_and_can_be_undone(
    bulk_actions: BulkActions,
) -> None:
    bulk_actions.add(5)
    before = bulk_actions.records()
    job_id = bulk_actions.begin(BulkActionKind.REMOVE)
    bulk_actions.take_turn(job_id)
    lease = bulk_actions.importing.lease(job_id)
    with bulk_actions.resources.unit_of_work() as uow:
        cancel_job(uow, lease)
    with bulk_actions.resources.unit_of_work() as uow:
        bulk_action = uow.session.scalars(
            select(BulkAction).where(BulkAction.list_id == bulk_actions.list_id)
        ).one()
    assert (bulk_action.status, bulk_action.changed) == ("cancelled", 3)
    assert bulk_action.finished_at is not None
    assert bulk_actions.undo(bulk_action.id)["undone"] == 3
    assert bulk_actions.records() == before


def test_bulk_undo_restores_only_as_many_members_as_the_plan_allows(
    bulk_actions: BulkActions,
) -> None:
    removed_members = bulk_actions.add(3)
    bulk_id = bulk_actions.do(BulkActionKind.REMOVE)["bulk_id"]
    bulk_actions.add(2, tag="new")
    quota = {PlanQuota.MEMBERS: 4}
    limited_settings = bulk_actions.stack.settings().model_copy(update={"quota_paid": quota})
    job_id = bulk_actions.begin_undo(bulk_id)
    lease = bulk_actions.importing.lease(job_id)
    with pytest.raises(DomainError) as error:
        BULK_UNDO.run(replace(bulk_actions.resources, settings=limited_settings), lease)
    assert error.value.code == "quota.exceeded"
    assert bulk_actions.statuses() == ["active"] * 2 + ["removed"] + ["active"] * 2
    # If the plan allows enough members, the undo restores all removed members.
    with bulk_actions.resources.unit_of_work() as uow:
        hand_back_job(uow, lease)
    assert bulk_actions.importing.work(job_id).status == "succeeded"
    assert bulk_actions.statuses() == ["active"] * (len(removed_members) + 2)
