"""The members of a list, for its owner."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator

from api.access import actors
from api.access.requirements import ListEditor, ListReader
from api.bodies.forms import BOOLEAN_WORDS
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.limits.shares import ACTS_BY_LIST
from api.list_answers import list_responses
from api.openapi import array_pages, refuses
from api.parameters import ArrayPaging, IntegerOrSlug, ListId, Paging, PathId, StateOf, link_next
from api.schemas import subscriptions as schemas
from api.schemas.envelope import Envelope, Page, envelope, enveloped, page
from core.refusals import mailing, requests
from models import SubscriptionStatus, Tier
from services.mailing import lists
from services.mailing.subscriptions import member_pages, members, transfers
from services.mailing.subscriptions.member_pages import MemberFilters
from services.people import accounts

router = APIRouter(tags=["Members"], route_class=JsonRoute)


_OWNERS = refuses(mailing.LIST_NOT_OWNER, mailing.LIST_NOT_FOUND)
_MEMBERS = refuses(mailing.LIST_NOT_OWNER, mailing.LIST_NOT_FOUND, mailing.MEMBER_NOT_FOUND)
_ACTS = {**_MEMBERS, **refuses(mailing.LIST_BUSY)}


def _premium(value: object) -> bool | Tier:
    words: dict[str, bool | Tier] = {**BOOLEAN_WORDS, **{tier.value: tier for tier in Tier}}
    try:
        return words[str(value).lower()]
    except KeyError:
        raise ValueError(f"must be one of {', '.join(words)}") from None


Premium = Annotated[
    bool | Tier,
    BeforeValidator(_premium, json_schema_input_type=str),
    Query(description="1: on a paid tier now, 0: not, or the tier now: free, silver, gold"),
]


@router.get(
    "/lists/{list_id}/subscriptions",
    response_model=Envelope[schemas.MembersPage],
    responses={**_OWNERS, **refuses(requests.CURSOR_INVALID)},
)
@RECORDS.threaded
def list_members(
    state: StateOf,
    caller: ListReader,
    list_id: IntegerOrSlug,
    paging: Paging,
    email: Annotated[
        str | None, Query(description="A whole address, or the beginning of one and a *")
    ] = None,
    premium: Premium | None = None,
    status: SubscriptionStatus = SubscriptionStatus.ACTIVE,
) -> Response:
    """A list's subscriptions, newest first; only its owner sees them."""
    filters = MemberFilters(status, email, premium)
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        found = member_pages.page(uow, mailing_list.id, filters, paging)
    pagination = schemas.MembersPagination.of(paging, found.page, total=found.total)
    items = [schemas.member_item(row) for row in found.page.rows]
    return enveloped({"pagination": pagination.model_dump(), "items": items})


@router.post(
    "/subscriptions/{list_id}/members/{user_id}/transfer",
    responses={**_ACTS, **refuses(mailing.TRANSFER_SAME_LIST)},
)
@ACTS_BY_LIST.threaded("list_id")
def transfer_member(
    request: Request,
    state: StateOf,
    caller: ListEditor,
    list_id: PathId,
    user_id: PathId,
    dst_list_id: Annotated[PathId, Query(description="Another list of the caller's")],
) -> Envelope[int]:
    """Move a member to another list of the caller's: 1, or 0 for one who was removed before.

    If the other list has the member already, the records merge: the higher tier, the later expiry,
    and the opt-outs of both.
    """
    with state.resources.unit_of_work() as uow:
        source, target = lists.owned(uow, caller, list_id), lists.owned(uow, caller, dst_list_id)
        keyring, actor = state.resources.keyring, actors.owner_actor(request, caller)
        return envelope(transfers.transfer(uow, keyring, source, target, user_id, actor=actor))


@router.delete("/subscriptions/{list_id}/members/{user_id}", responses=_ACTS)
@ACTS_BY_LIST.threaded("list_id")
def remove_member(
    request: Request, state: StateOf, caller: ListEditor, list_id: PathId, user_id: PathId
) -> Envelope[int]:
    """Remove a member from the list: 1, or 0 for a removed one. They can be added again."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        actor = actors.owner_actor(request, caller)
        return envelope(members.remove(uow, mailing_list, user_id, actor))


@router.put(
    "/subscriptions/{list_id}/members/{user_id}/email",
    responses={**_ACTS, **refuses(mailing.SUBSCRIPTION_OPTED_OUT)},
)
@ACTS_BY_LIST.threaded("list_id")
def set_member_email_enabled(
    request: Request,
    state: StateOf,
    caller: ListEditor,
    list_id: PathId,
    user_id: PathId,
    body: schemas.EmailSetting,
) -> Envelope[int]:
    """Switch the mail to a member off or on: 1, or 0 for no change. An opt-out stays."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        keyring, actor = state.resources.keyring, actors.owner_actor(request, caller)
        return envelope(
            members.set_email(uow, keyring, mailing_list, user_id, actor, enabled=body.enabled)
        )


@router.get(
    "/subscriptions/{list_id}/members/{user_id}/subs", responses={**_MEMBERS, **array_pages()}
)
@RECORDS.threaded
def list_member_subscriptions(
    request: Request,
    response: Response,
    state: StateOf,
    caller: ListReader,
    list_id: PathId,
    user_id: PathId,
    paging: ArrayPaging,
) -> Envelope[list[schemas.SubscriptionRecord]]:
    """The member's records on all lists of this list's owner, newest first."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        found = members.subscriptions_to_owner(uow, mailing_list, user_id, paging)
        person = accounts.get(uow, user_id)
        channels = list_responses(uow, state, [each for _, each in found.rows])
        people = [schemas.person_record(record, person) for record, _ in found.rows]
        records = [
            schemas.SubscriptionRecord.of_row(record, user=user, list=channel)
            for (record, _), user, channel in zip(found.rows, people, channels, strict=True)
        ]
    link_next(request, response, found)
    return envelope(records)


@router.get("/lists/{list_id}/members/{user_id}", responses=_MEMBERS)
@RECORDS.threaded
def read_member(
    state: StateOf, caller: ListReader, list_id: ListId, user_id: PathId
) -> Envelope[schemas.SubscriptionRecord]:
    """One member of the list, in any status."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        member = members.get(uow, mailing_list, user_id)
        person = schemas.person_record(member, accounts.get(uow, user_id))
        return envelope(schemas.SubscriptionRecord.of_row(member, user=person))


@router.patch("/lists/{list_id}/members/{user_id}", responses=_ACTS)
@ACTS_BY_LIST.threaded("list_id")
def change_member(
    request: Request,
    state: StateOf,
    caller: ListEditor,
    list_id: ListId,
    user_id: PathId,
    body: schemas.MemberChanges,
) -> Envelope[schemas.SubscriptionRecord]:
    """Set the list's own name for a member, their tier and its end; unnamed fields stay."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        actor = actors.owner_actor(request, caller)
        member = members.update(uow, mailing_list, user_id, body.sent(), actor)
        person = schemas.person_record(member, accounts.get(uow, user_id))
        return envelope(schemas.SubscriptionRecord.of_row(member, user=person))


@router.get(
    "/lists/{list_id}/members/{user_id}/history",
    responses={**_MEMBERS, **refuses(requests.CURSOR_INVALID)},
)
@RECORDS.threaded
def read_member_history(
    state: StateOf,
    caller: ListReader,
    list_id: ListId,
    user_id: PathId,
    paging: Paging,
) -> Envelope[Page[schemas.HistoryEntry]]:
    """The events of a member's subscription: who caused each, when and from where; newest first."""
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        found = members.history(uow, mailing_list, user_id, paging)
        items = [schemas.HistoryEntry.model_validate(event) for event in found.rows]
    return envelope(page(items, paging, found))
