"""The API endpoints for one member of a list, for the owner of the list."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.auth import actors
from api.auth.member_reads import count_members_page
from api.auth.requirements import ListEditor, MemberReader
from api.limits.keyed_bulkheads import threaded_by_list
from api.openapi.declarations import LIST_ERRORS, array_page_responses, error_responses
from api.paging import ArrayPaging, Paging, link_next_page
from api.record_ids import ListId, MemberName, PathId, PathPersonId
from api.responses.lists import describe_lists
from api.route_classes import JsonRoute
from api.schemas import subscriptions as schemas
from api.schemas.engagement import EngagementSetting
from api.schemas.envelope import Envelope, Page, build_envelope, build_page
from api.schemas.subscriptions import MemberConsent
from api.state import State, StateOf, Transaction
from core.errors import access, mailing, requests
from models import MailingList, Subscription
from services.access.caller import Caller
from services.accounts import accounts
from services.subscriptions import lists, member_attributes
from services.subscriptions.consent import evidence, networks
from services.subscriptions.consent.evidence import ConsentEvidence
from services.subscriptions.members import (
    engagement_choices,
    members,
    person_subscriptions,
    transfers,
)
from services.subscriptions.members.email_offs import find_email_off, find_email_offs
from services.subscriptions.members.engagement_views import read_view, read_views
from storage.unit_of_work import UnitOfWork

router = APIRouter(tags=["Members"], route_class=JsonRoute)

_READ_ERRORS = (*LIST_ERRORS, mailing.MEMBER_NOT_FOUND)
_CHANGE_ERRORS = (*_READ_ERRORS, mailing.LIST_BUSY)
_EDIT_ERRORS = (
    *_CHANGE_ERRORS,
    mailing.FIELD_VALUE,
    mailing.TAG_TOO_MANY,
    mailing.TAG_TOO_MANY_OF_MEMBER,
)
_MEMBER_PATH = "/lists/{list_id}/members/{user_id}"


@router.post(
    "/subscriptions/{list_id}/members/{user_id}/transfer",
    summary="Transfer a member",
    responses=error_responses(*_CHANGE_ERRORS, mailing.TRANSFER_SAME_LIST, mailing.MEMBER_DENIED),
)
@threaded_by_list
def transfer_member(
    request: Request,
    uow: Transaction,
    caller: ListEditor,
    list_id: ListId,
    user_id: PathPersonId,
    dst_list_id: Annotated[PathId, Query(description="The id of another list that you own")],
) -> Envelope[int]:
    """Move a member to another list that you own. Returns 1, or 0 if the member was already
    removed.

    If the person is already a member of the other list, the subscriptions are merged. The merged
    subscription has the higher tier, the later expiry, and the opt-outs of both subscriptions.
    """
    source = lists.get_own_list(uow, caller, list_id)
    target = lists.get_own_list(uow, caller, dst_list_id)
    actor = actors.build_owner_actor(request, caller)
    moved = transfers.transfer_member(uow, source, target, user_id, actor=actor)
    return build_envelope(moved)


@router.delete(
    "/subscriptions/{list_id}/members/{user_id}",
    summary="Remove a member",
    responses=error_responses(*_CHANGE_ERRORS),
)
@threaded_by_list
def remove_member(
    request: Request, uow: Transaction, caller: ListEditor, list_id: ListId, user_id: PathPersonId
) -> Envelope[int]:
    """Remove a member from a list. Returns 1, or 0 if the member was already removed. You can add
    the member again.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    actor = actors.build_owner_actor(request, caller)
    return build_envelope(members.remove_member(uow, mailing_list, user_id, actor))


@router.put(
    "/subscriptions/{list_id}/members/{user_id}/email",
    summary="Turn a member's mail on or off",
    responses=error_responses(
        *_CHANGE_ERRORS, mailing.SUBSCRIPTION_OPTED_OUT, mailing.SUBSCRIPTION_BOUNCED
    ),
)
@threaded_by_list
def set_member_email_enabled(
    request: Request,
    uow: Transaction,
    caller: ListEditor,
    list_id: ListId,
    user_id: PathPersonId,
    body: schemas.EmailSetting,
) -> Envelope[int]:
    """Turn a member's mail on or off. Returns 1, or 0 if nothing changed. You can't reverse an
    opt-out. After a bounce, you can turn the member's mail on at most once in 30 days.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    actor = actors.build_owner_actor(request, caller)
    return build_envelope(
        members.set_email(uow, mailing_list, user_id, actor, enabled=body.enabled)
    )


@router.put(
    "/subscriptions/{list_id}/members/{user_id}/engagement",
    summary="Refuse to record a member's engagement",
    responses=error_responses(*_READ_ERRORS, mailing.ENGAGEMENT_ONLY_BY_PERSON),
)
def refuse_member_engagement(
    request: Request,
    uow: Transaction,
    caller: ListEditor,
    list_id: ListId,
    user_id: PathPersonId,
    body: EngagementSetting,
) -> Envelope[int]:
    """Store the no of a member who asked you not to record opens and clicks. Returns 1, or 0 if the
    member had already said no. The list's counts about the member are deleted.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    member = members.get_member(uow, mailing_list, user_id)
    if body.enabled:
        raise mailing.ENGAGEMENT_ONLY_BY_PERSON()
    person = accounts.get_user(uow, member.user_id)
    actor = actors.build_owner_actor(request, caller)
    is_new = engagement_choices.refuse_engagement(uow, mailing_list, person, actor)
    return build_envelope(int(is_new))


@router.get(
    "/subscriptions/{list_id}/members/{user_id}/subs",
    summary="List a member's subscriptions",
    responses=array_page_responses(*_READ_ERRORS),
)
def list_member_subscriptions(
    request: Request,
    response: Response,
    state: StateOf,
    uow: Transaction,
    caller: MemberReader,
    list_id: ListId,
    user_id: PathPersonId,
    paging: ArrayPaging,
) -> Envelope[list[schemas.SubscriptionRecord]]:
    """List the subscriptions of a member to all lists of this list's owner, newest first."""
    mailing_list = lists.get_own_list(uow, caller, list_id)
    page = person_subscriptions.list_subscriptions_to_owner(uow, mailing_list, user_id, paging)
    person = accounts.get_user(uow, user_id)
    channels = describe_lists(uow, state, [mailing_list for _, mailing_list in page.rows])
    attributes = member_attributes.create_formatter(
        uow, caller.account_id, [record.tag_ids for record, _ in page.rows]
    )
    email_offs = find_email_offs(uow, [record for record, _ in page.rows])
    views = read_views(uow, [record for record, _ in page.rows])
    records = [
        schemas.build_member_record(
            record,
            person,
            attributes,
            email_offs.get(record.id),
            views[record.id],
            list=channel,
        )
        for (record, _), channel in zip(page.rows, channels, strict=True)
    ]
    link_next_page(request, response, page)
    count_members_page(state, caller)
    return build_envelope(records)


@router.get(_MEMBER_PATH, summary="Retrieve a member", responses=error_responses(*_READ_ERRORS))
def read_member(
    state: StateOf, uow: Transaction, caller: MemberReader, list_id: ListId, user_id: MemberName
) -> Envelope[schemas.SubscriptionRecord]:
    """Retrieve a member of a list, in any status, by user id or e-mail address."""
    mailing_list = lists.get_own_list(uow, caller, list_id)
    member = members.get_member(uow, mailing_list, user_id)
    return build_envelope(_build_record(state, uow, caller, mailing_list, member))


@router.patch(_MEMBER_PATH, summary="Update a member", responses=error_responses(*_EDIT_ERRORS))
@threaded_by_list
def change_member(
    request: Request,
    state: StateOf,
    uow: Transaction,
    caller: ListEditor,
    list_id: ListId,
    user_id: MemberName,
    body: schemas.MemberChanges,
) -> Envelope[schemas.SubscriptionRecord]:
    """Update a member's name, tier, paid_expiry, fields and tags on the list.

    Values that the request omits don't change, including values within `fields`. New tags are
    created automatically.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    actor = actors.build_owner_actor(request, caller)
    member = members.update_member(uow, mailing_list, user_id, body.edit(), actor)
    return build_envelope(_build_record(state, uow, caller, mailing_list, member))


@router.put(
    _MEMBER_PATH,
    summary="Create or update a member",
    responses=error_responses(
        *_EDIT_ERRORS,
        mailing.SUBSCRIPTION_OPTED_OUT,
        mailing.MEMBER_DENIED,
        mailing.PLAN_REQUIRED,
        access.QUOTA_EXCEEDED,
    ),
)
@threaded_by_list
def put_member(
    request: Request,
    state: StateOf,
    uow: Transaction,
    caller: ListEditor,
    list_id: ListId,
    user_id: MemberName,
    body: schemas.MemberUpsert,
) -> Envelope[schemas.SubscriptionRecord]:
    """Update the member with this address, or add a new member. You can safely repeat the request.

    Values that the request omits don't change, including values within `fields`. A new member is
    active immediately and receives no mail from Pressroom. Adding a member requires the paid plan.
    A pending member stays pending. If the person opted out, the response is 409, and nothing
    changes.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    actor = actors.build_owner_actor(request, caller)
    member = members.upsert_member(uow, mailing_list, user_id, body.edit(), actor)
    return build_envelope(_build_record(state, uow, caller, mailing_list, member))


def _build_record(
    state: State, uow: UnitOfWork, caller: Caller, mailing_list: MailingList, member: Subscription
) -> schemas.SubscriptionRecord:
    count_members_page(state, caller)
    person = accounts.get_user(uow, member.user_id)
    attributes = member_attributes.create_formatter(uow, mailing_list.user_id, [member.tag_ids])
    return schemas.build_member_record(
        member, person, attributes, find_email_off(uow, member), read_view(uow, member)
    )


@router.get(
    "/lists/{list_id}/members/{user_id}/history",
    summary="Retrieve a member's history",
    responses=error_responses(*_READ_ERRORS, requests.CURSOR_INVALID),
)
def read_member_history(
    uow: Transaction, caller: MemberReader, list_id: ListId, user_id: PathPersonId, paging: Paging
) -> Envelope[Page[schemas.HistoryEntry]]:
    """List the changes of a member's subscription, newest first. Each entry contains who made the
    change, when and from where.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    entry = schemas.HistoryEntry.of_event
    read = partial(members.list_history, uow, mailing_list, user_id)
    return build_envelope(build_page(paging, read, lambda rows: [*map(entry, rows)]))


@router.get(
    "/lists/{list_id}/members/{user_id}/consent",
    summary="Retrieve a member's consent",
    responses=error_responses(*_READ_ERRORS, requests.CURSOR_INVALID),
)
def read_member_consent(
    uow: Transaction, caller: MemberReader, list_id: ListId, user_id: PathPersonId, paging: Paging
) -> Envelope[Page[MemberConsent]]:
    """List the consents of a member, newest first. Each entry was recorded by Pressroom or claimed
    by an import.

    Entries can't be changed or deleted. Claims are removed if their import is undone, and all
    entries are removed if the person is erased.
    """
    mailing_list = lists.get_own_list(uow, caller, list_id)
    member = members.get_member(uow, mailing_list, user_id)
    read = partial(evidence.list_evidence, uow, member)

    def convert(rows: list[ConsentEvidence]) -> list[MemberConsent]:
        counts = networks.count_people_by_network(uow, member, rows)
        return [MemberConsent.of(row, counts) for row in rows]

    return build_envelope(build_page(paging, read, convert))
