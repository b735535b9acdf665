"""How members of a list agreed to get it, for the list's owner."""

from fastapi import APIRouter

from api.access.requirements import ListReader
from api.bodies.json_route import JsonRoute
from api.limits.bulkheads import RECORDS
from api.openapi import refuses
from api.parameters import ListId, Paging, PathId, StateOf
from api.schemas.envelope import Envelope, Page, envelope, page
from api.schemas.member_consent import MemberConsent
from core.refusals import mailing, requests
from services.mailing import lists
from services.mailing.consent import member_consent
from services.mailing.subscriptions import members

router = APIRouter(tags=["Members"], route_class=JsonRoute)


@router.get(
    "/lists/{list_id}/members/{user_id}/consent",
    responses=refuses(
        mailing.LIST_NOT_OWNER,
        mailing.LIST_NOT_FOUND,
        mailing.MEMBER_NOT_FOUND,
        requests.CURSOR_INVALID,
    ),
)
@RECORDS.threaded
def read_member_consent(
    state: StateOf, caller: ListReader, list_id: ListId, user_id: PathId, paging: Paging
) -> Envelope[Page[MemberConsent]]:
    """How a member agreed to get the list, newest first: what was seen, and what is claimed.

    No call changes or deletes an entry. An undo takes back what its import claims, and the erasure
    of the person takes all.
    """
    with state.resources.unit_of_work() as uow:
        mailing_list = lists.owned(uow, caller, list_id)
        member = members.get(uow, mailing_list, user_id)
        found = member_consent.page(uow, member, paging)
    return envelope(page([MemberConsent.of(each) for each in found.rows], paging, found))
